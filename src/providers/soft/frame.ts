// The frames of the soft device: what every wire carries, and the only place that knows their
// layout.
//
// A frame is a header of 14 little-endian words and a payload. Requests (send, write, read,
// atomics) carry the requester's packet sequence number, answers that of the request they answer.
// Nothing is split: a message is one frame.

export const HEADER_BYTES = 56;
export const HEADER_WORDS = HEADER_BYTES / 4;
/** As on InfiniBand: 2^31 would be allowed there, lengths are 31 bits here. */
export const MAX_MESSAGE_BYTES = 0x4000_0000;

export const frameTypes = {
  send: 1,
  write: 2,
  read: 3,
  fetchAdd: 4,
  compareSwap: 5,
  ack: 6,
  nak: 7,
  readResponse: 8,
  atomicResponse: 9,
  /** All requests before it are to be acknowledged, however they were sent. */
  ackRequest: 10,
} as const;

/** Without `wantsAck`, a request is acknowledged with a later one. */
export const frameFlags = { hasImm: 1, solicited: 2, wantsAck: 4 } as const;

/** Words of a header. */
export const headerRow = {
  magic: 0,
  /** Type in the low byte, flags in the next. */
  kind: 1,
  sequence: 2,
  payloadBytes: 3,
  /** Immediate data; of a nak, its reason. */
  imm: 4,
  rkey: 5,
  remoteAddress: 6,
  /** Bytes to read; what to add or compare with; of an atomic's answer, what was there. */
  operandA: 8,
  operandB: 10,
  headerSum: 12,
  payloadSum: 13,
} as const;

/** Why a request was refused. */
export const nakReasons = { notReady: 1, sequence: 2, invalid: 3, access: 4, operation: 5 } as const;

const MAGIC = 0x3152_524d; // "MRR1"

export function frameType(words: Uint32Array): number {
  return words[headerRow.kind] & 0xff;
}

export function hasFlag(words: Uint32Array, flag: number): boolean {
  return ((words[headerRow.kind] >>> 8) & flag) !== 0;
}

/** Starts a header: all other words are zero. */
export function beginFrame(
  words: Uint32Array,
  type: number,
  flags: number,
  sequence: number,
  payloadBytes: number,
): void {
  words[headerRow.magic] = MAGIC;
  words[headerRow.kind] = type | (flags << 8);
  words[headerRow.sequence] = sequence;
  words[headerRow.payloadBytes] = payloadBytes;
  for (let word: number = headerRow.imm; word < HEADER_WORDS; word++) words[word] = 0;
}

const messageFlags = frameFlags.hasImm | frameFlags.solicited | frameFlags.wantsAck;
const knownFlags: Readonly<Record<number, number>> = {
  [frameTypes.send]: messageFlags,
  [frameTypes.write]: messageFlags,
};

/** Why this header is a protocol error, or undefined. Checks only the words themselves. */
export function frameProblem(words: Uint32Array): string | undefined {
  if (words[headerRow.magic] !== MAGIC) return 'a frame without the magic number';
  const type = frameType(words);
  const flags = words[headerRow.kind] >>> 8;
  if (type < frameTypes.send || type > frameTypes.ackRequest) return `a frame of unknown type ${type}`;
  if ((flags & ~(knownFlags[type] ?? 0)) !== 0) return `a frame of type ${type} with unknown flags ${flags}`;
  if (words[headerRow.sequence] > 0xff_ffff) return 'a sequence number of more than 24 bits';
  const payloadBytes = words[headerRow.payloadBytes];
  const mayHavePayload = type === frameTypes.send || type === frameTypes.write || type === frameTypes.readResponse;
  if (payloadBytes > (mayHavePayload ? MAX_MESSAGE_BYTES : 0)) return `a payload of ${payloadBytes} bytes`;
  if (type === frameTypes.read) {
    const isTooLong = words[headerRow.operandA] > MAX_MESSAGE_BYTES || words[headerRow.operandA + 1] !== 0;
    if (isTooLong) return 'a read of more than a message may have';
  }
  if (type === frameTypes.nak) {
    const reason = words[headerRow.imm] & 0xff;
    if (reason < nakReasons.notReady || reason > nakReasons.operation) return `a nak for unknown reason ${reason}`;
  }
  // Addresses are numbers in JavaScript: beyond 2^53 they would be rounded to another address.
  if (words[headerRow.remoteAddress + 1] > 0x1f_ffff) return 'an address of more than 53 bits';
  return undefined;
}
