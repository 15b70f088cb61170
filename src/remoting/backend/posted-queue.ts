// What a guest posts to, as its backend has it: rows are copied out of the ring, checked, and posted natively.

import { MillraceError } from '../../errors.ts';

/** Rows that are copied and posted at once. */
export const POST_ROWS = 64;

export interface PostedQueue {
  /** Of native ids; see TagTable. */
  readonly tag: number;
  /** More is in the ring than the device takes now; its next completion makes room. */
  readonly isBlocked: boolean;
  /** Whether the guest has posted something that was not taken. */
  readonly hasWork: boolean;
  /** Takes what was posted; returns how many rows. Throws when the guest has broken the rules. */
  pump(): number;
  /**
   * The request with this place is done natively. Puts the guest's id into the row of its completion, and says whether
   * the guest is to have it.
   */
  complete(place: number, row: Uint32Array, at: number): boolean;
  /** Tells the guest how many are done. */
  publish(): void;
  /** The native queue was emptied without completions. */
  reset(): void;
}

/** What a guest may name in its requests. A key that is not in here is replaced by 0, which every device refuses. */
export interface GuestKeys {
  readonly lkeys: ReadonlySet<number>;
  readonly addressHandles: ReadonlySet<number>;
}

/** For a guest that has posted more than there is room for: no honest frontend does. */
export function overfull(waiting: number, free: number): MillraceError {
  return new MillraceError('MILLRACE_ERR_PROTOCOL', `a ring with ${waiting} new requests: there was room for ${free}`);
}
