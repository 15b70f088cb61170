// What the backend has for each queue that a guest posts to: the send queue of a QP, its receive
// queue, or an SRQ.

/** Rows that are copied and posted at once. */
export const POST_ROWS = 64;

export interface GuestRequestQueue {
  /** The upper word of its native work request ids; see TagTable. */
  readonly tag: number;
  /** More is in the ring than the device takes now; its next completion makes room. */
  readonly isBlocked: boolean;
  /** Whether the guest has posted something that was not taken. */
  readonly hasWork: boolean;
  /** Takes what was posted; returns how many rows. Throws on a protocol error of the guest. */
  pump(): number;
  /**
   * The request with this place is done natively. Puts the guest's id into the row of its
   * completion, and says whether the guest is to have it.
   */
  complete(place: number, row: Uint32Array, at: number): boolean;
  /** Tells the guest how many are done. */
  publish(): void;
  /** The native queue was emptied without completions. */
  reset(): void;
}
