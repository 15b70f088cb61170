// Operation codes of InfiniBand packets: the upper three bits name the transport, the lower five
// what it is.

/** The transports that RoCEv2 packets here belong to. */
export const transports = { rc: 0x00, uc: 0x20, ud: 0x60 } as const;

export const TRANSPORT_MASK = 0xe0;

export const operations = {
  sendFirst: 0,
  sendMiddle: 1,
  sendLast: 2,
  sendLastWithImm: 3,
  sendOnly: 4,
  sendOnlyWithImm: 5,
  writeFirst: 6,
  writeMiddle: 7,
  writeLast: 8,
  writeLastWithImm: 9,
  writeOnly: 10,
  writeOnlyWithImm: 11,
  readRequest: 12,
  readResponseFirst: 13,
  readResponseMiddle: 14,
  readResponseLast: 15,
  readResponseOnly: 16,
  acknowledge: 17,
  atomicAcknowledge: 18,
  compareSwap: 19,
  fetchAdd: 20,
} as const;

/** Which extended headers follow the BTH, in this order. */
export const parts = { deth: 1, reth: 2, atomic: 4, aeth: 8, atomicAck: 16, imm: 32, payload: 64 } as const;

export const partBytes = { deth: 8, reth: 16, atomic: 28, aeth: 4, atomicAck: 8, imm: 4 } as const;

const { deth, reth, atomic, aeth, atomicAck, imm, payload } = parts;

/** By operation, for RC. */
const rcParts: readonly number[] = [
  payload, // send first
  payload,
  payload,
  imm | payload,
  payload,
  imm | payload,
  reth | payload, // write first
  payload,
  payload,
  imm | payload,
  reth | payload,
  reth | imm | payload,
  reth, // read request
  aeth | payload,
  payload,
  aeth | payload,
  aeth | payload,
  aeth,
  aeth | atomicAck,
  atomic,
  atomic,
];

/** Indexed by the whole code; 0 is for unknown codes. */
const partsByOpcode = new Uint8Array(256);
const headerBytesByOpcode = new Uint8Array(256);

for (const [operation, bits] of rcParts.entries()) {
  partsByOpcode[transports.rc | operation] = bits;
  // UC has sends and writes only, UD sends of one packet.
  if (operation <= operations.writeOnlyWithImm) partsByOpcode[transports.uc | operation] = bits;
  const isOnlySend = operation === operations.sendOnly || operation === operations.sendOnlyWithImm;
  if (isOnlySend) partsByOpcode[transports.ud | operation] = deth | bits;
}

for (const [opcode, bits] of partsByOpcode.entries()) {
  let bytes = 0;
  for (const [name, size] of Object.entries(partBytes)) {
    if ((bits & parts[name as keyof typeof partBytes]) !== 0) bytes += size;
  }
  headerBytesByOpcode[opcode] = bytes;
}

/** Bits of `parts`, or 0 when the code is unknown. */
export function partsOf(opcode: number): number {
  return partsByOpcode[opcode];
}

/** Bytes of extended headers. */
export function extendedBytesOf(opcode: number): number {
  return headerBytesByOpcode[opcode];
}
