// What moves the blocks of a stream between its two ends.

export interface Carrier {
  /**
   * Settles when the far side has everything (producer) or when all has come and been released (consumer). Rejects with
   * a VortexError.
   */
  readonly ended: Promise<void>;
  /** Frees what it holds. When not all is through by now, the other end is told that it never will be. */
  close(): Promise<void>;
}

/** For two ends that share the queue nothing has to be moved; the socket stays open to tell the other that this one lives. */
export function carrierOver(lifeline: Disposable): Carrier {
  return { ended: Promise.resolve(), close: async () => lifeline[Symbol.dispose]() };
}
