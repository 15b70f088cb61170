// What the library, the daemon and the program at the other end agree on: direct/layout.h says the
// same in C, and a test compares them.

export const DIRECT_VERSION = 4;

/** struct mr_message: eight words. */
export const MESSAGE_BYTES = 32;

/** enum mr_message_kind */
export const messageKinds = {
  hello: 1,
  offer: 2,
  withdraw: 3,
  listens: 4,
  welcome: 16,
  arena: 17,
  promote: 18,
  decline: 19,
  demote: 20,
  forget: 21,
  trim: 22,
} as const;

export interface Message {
  readonly kind: number;
  /** Chosen by the program. */
  readonly connection?: number;
  /** Chosen by the daemon. */
  readonly arena?: number;
  readonly slot?: number;
  readonly party?: number;
  /** The version, the bytes of each ring, or the inode of a listening socket. */
  readonly value?: number;
  /**
   * Of an arena: WITH_LANE or 0. Of a promotion there: what the two libraries know each other by.
   */
  readonly token?: bigint;
}

/** enum mr_withdraw_flags, in the place of the token. */
export const withdrawFlags = {
  /** The lane sends what the ring still has. */
  leavesRest: 1n,
  /** The lane left it, because it moves bulk. */
  wasBulk: 2n,
} as const;

/** enum mr_arena_flags: the other party is a lane of the daemon. */
export const WITH_LANE = 1;

export function encodeMessage(message: Message): Uint8Array {
  const { kind, connection = 0, arena = 0, slot = 0, party = 0, value = 0, token = 0n } = message;
  const bytes = new Uint8Array(Uint32Array.of(kind, connection, arena, slot, party, value, 0, 0).buffer);
  new DataView(bytes.buffer).setBigUint64(24, token, true);
  return bytes;
}

/** Null when it has not the size of a message. */
export function decodeMessage(bytes: Uint8Array): Required<Message> | null {
  if (bytes.byteLength !== MESSAGE_BYTES) return null;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const word = (index: number): number => view.getUint32(index * 4, true);
  const token = view.getBigUint64(24, true);
  return { kind: word(0), connection: word(1), arena: word(2), slot: word(3), party: word(4), value: word(5), token };
}

/** struct mr_desk has one word, the number of messages sent. */
export const DESK_BYTES = 4096;

/** The memory that two parties share has a room of its own. */
export {
  arenaBytes,
  DOORBELL_BYTES,
  doorbellWords,
  FLOW_BYTES,
  flowWords,
  lostWords,
  RINGS_OFFSET,
  ringsOffset,
  SLOT_BYTES,
  SLOTS,
  SLOTS_OFFSET,
} from './arena/index.ts';
