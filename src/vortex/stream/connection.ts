// What an end of a stream knows of the way to the other end: that it lives, and when everything has
// got there.

export interface Connection {
  /**
   * Settles when the other end has everything (producer), or when everything has arrived and was
   * released (consumer). Rejects with a VortexError.
   */
  readonly ended: Promise<void>;
  /**
   * A socket that hangs up when the other end, or the engine, has gone: the pager and StreamEnd
   * watch it.
   */
  readonly lifelineFd?: number | undefined;
  /**
   * Frees what it holds. If not everything is through by now, the other end is told that it never
   * will be.
   */
  close(): Promise<void>;
}

/**
 * Between two ends that share the queue nothing has to be moved: the socket alone connects them.
 */
export function lifelineConnection(lifeline: { readonly fd: number } & Disposable): Connection {
  return {
    ended: Promise.resolve(),
    lifelineFd: lifeline.fd,
    close: async () => lifeline[Symbol.dispose](),
  };
}
