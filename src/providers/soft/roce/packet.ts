// RoCEv2 packets, from the base transport header to the padding: the only place that knows their
// layout.
//
// All fields are big-endian. A packet is the payload of a UDP datagram to port 4791: BTH, extended
// headers by operation, payload, padding to four bytes, and the ICRC, which native/icrc.c makes and
// checks.

import { extendedBytesOf, partBytes, parts, partsOf } from './opcode.ts';

export const ROCE_PORT = 4791;
export const BTH_BYTES = 12;
export const ICRC_BYTES = 4;
/** The longest headers: BTH and AtomicETH. */
export const MAX_HEADER_BYTES = BTH_BYTES + partBytes.atomic;
/** The default partition, with full membership. */
const DEFAULT_PKEY = 0xffff;

/** AETH syndromes: what an acknowledgement says. */
export const syndromes = {
  /** With a credit count of "do not count". */
  ack: 0x1f,
  rnrNak: 0x20,
  nak: 0x60,
  kindMask: 0x60,
  valueMask: 0x1f,
} as const;

/** Reasons in a NAK. */
export const nakCodes = { sequence: 0, invalid: 1, access: 2, operation: 3, invalidRead: 4 } as const;

/**
 * The fields of one packet; reused for every packet. Those that the operation does not have keep
 * old values.
 */
export class Packet {
  opcode = 0;
  isSolicited = false;
  isMigrated = false;
  padBytes = 0;
  version = 0;
  pkey = DEFAULT_PKEY;
  /** Congestion marks, and six reserved bits. Not covered by the ICRC. */
  marks = 0;
  destQp = 0;
  isAckRequested = false;
  /** Seven bits beside the acknowledge request. */
  reserved = 0;
  psn = 0;
  // DETH
  qkey = 0;
  /** Eight bits before the source QP. */
  dethReserved = 0;
  sourceQp = 0;
  // RETH and AtomicETH; 64 bits are kept as two halves
  addressHigh = 0;
  addressLow = 0;
  rkey = 0;
  dmaLength = 0;
  /** Swap, or what to add. */
  swapHigh = 0;
  swapLow = 0;
  compareHigh = 0;
  compareLow = 0;
  // AETH
  syndrome = 0;
  msn = 0;
  // AtomicAckETH
  originalHigh = 0;
  originalLow = 0;
  imm = 0;
  /** Relative to the start of the view. */
  payloadOffset = 0;
  payloadBytes = 0;
}

/**
 * Reads a packet of `length` bytes, the ICRC being its last four. Returns what is wrong with it, or
 * undefined. Allocates nothing, and reads nothing outside of it.
 */
export function decodePacket(view: DataView, offset: number, length: number, into: Packet): string | undefined {
  if (length < BTH_BYTES + ICRC_BYTES) return 'shorter than its headers';
  const first = view.getUint32(offset);
  const opcode = first >>> 24;
  const bits = partsOf(opcode);
  if (bits === 0) return 'of an unknown kind';
  const headerBytes = BTH_BYTES + extendedBytesOf(opcode);
  const padBytes = (first >>> 20) & 3;
  const payloadBytes = length - headerBytes - padBytes - ICRC_BYTES;
  if (payloadBytes < 0) return 'shorter than its headers';
  if ((bits & parts.payload) === 0 && payloadBytes + padBytes !== 0) return 'longer than its headers';
  if (((payloadBytes + padBytes) & 3) !== 0) return 'not padded to four bytes';
  into.opcode = opcode;
  into.isSolicited = (first & 0x80_0000) !== 0;
  into.isMigrated = (first & 0x40_0000) !== 0;
  into.padBytes = padBytes;
  into.version = (first >>> 16) & 0xf;
  into.pkey = first & 0xffff;
  const second = view.getUint32(offset + 4);
  into.marks = second >>> 24;
  into.destQp = second & 0xff_ffff;
  const third = view.getUint32(offset + 8);
  into.isAckRequested = third >>> 31 !== 0;
  into.reserved = (third >>> 24) & 0x7f;
  into.psn = third & 0xff_ffff;
  decodeParts(view, offset + BTH_BYTES, bits, into);
  into.payloadOffset = offset + headerBytes;
  into.payloadBytes = payloadBytes;
  return into.version === 0 ? undefined : 'of another version';
}

function decodeParts(view: DataView, start: number, bits: number, into: Packet): void {
  let at = start;
  if ((bits & parts.deth) !== 0) {
    into.qkey = view.getUint32(at);
    const word = view.getUint32(at + 4);
    into.dethReserved = word >>> 24;
    into.sourceQp = word & 0xff_ffff;
    at += partBytes.deth;
  }
  if ((bits & (parts.reth | parts.atomic)) !== 0) {
    into.addressHigh = view.getUint32(at);
    into.addressLow = view.getUint32(at + 4);
    into.rkey = view.getUint32(at + 8);
    if ((bits & parts.reth) !== 0) {
      into.dmaLength = view.getUint32(at + 12);
      at += partBytes.reth;
    } else {
      into.swapHigh = view.getUint32(at + 12);
      into.swapLow = view.getUint32(at + 16);
      into.compareHigh = view.getUint32(at + 20);
      into.compareLow = view.getUint32(at + 24);
      at += partBytes.atomic;
    }
  }
  if ((bits & parts.aeth) !== 0) {
    const word = view.getUint32(at);
    into.syndrome = word >>> 24;
    into.msn = word & 0xff_ffff;
    at += partBytes.aeth;
  }
  if ((bits & parts.atomicAck) !== 0) {
    into.originalHigh = view.getUint32(at);
    into.originalLow = view.getUint32(at + 4);
    at += partBytes.atomicAck;
  }
  if ((bits & parts.imm) !== 0) into.imm = view.getUint32(at);
}

/**
 * Writes the headers; returns how many bytes they take. Payload, padding and ICRC are added by
 * `PacketSeal`.
 */
export function encodeHeaders(view: DataView, offset: number, packet: Packet): number {
  const { opcode } = packet;
  const bits = partsOf(opcode);
  view.setUint32(
    offset,
    ((opcode << 24) |
      (packet.isSolicited ? 0x80_0000 : 0) |
      (packet.isMigrated ? 0x40_0000 : 0) |
      (packet.padBytes << 20) |
      (packet.version << 16) |
      packet.pkey) >>>
      0,
  );
  view.setUint32(offset + 4, ((packet.marks << 24) | packet.destQp) >>> 0);
  view.setUint32(offset + 8, ((packet.isAckRequested ? 0x8000_0000 : 0) | (packet.reserved << 24) | packet.psn) >>> 0);
  let at = offset + BTH_BYTES;
  if ((bits & parts.deth) !== 0) {
    view.setUint32(at, packet.qkey);
    view.setUint32(at + 4, ((packet.dethReserved << 24) | packet.sourceQp) >>> 0);
    at += partBytes.deth;
  }
  if ((bits & (parts.reth | parts.atomic)) !== 0) {
    view.setUint32(at, packet.addressHigh);
    view.setUint32(at + 4, packet.addressLow);
    view.setUint32(at + 8, packet.rkey);
    if ((bits & parts.reth) !== 0) {
      view.setUint32(at + 12, packet.dmaLength);
      at += partBytes.reth;
    } else {
      view.setUint32(at + 12, packet.swapHigh);
      view.setUint32(at + 16, packet.swapLow);
      view.setUint32(at + 20, packet.compareHigh);
      view.setUint32(at + 24, packet.compareLow);
      at += partBytes.atomic;
    }
  }
  if ((bits & parts.aeth) !== 0) {
    view.setUint32(at, ((packet.syndrome << 24) | packet.msn) >>> 0);
    at += partBytes.aeth;
  }
  if ((bits & parts.atomicAck) !== 0) {
    view.setUint32(at, packet.originalHigh);
    view.setUint32(at + 4, packet.originalLow);
    at += partBytes.atomicAck;
  }
  if ((bits & parts.imm) !== 0) {
    view.setUint32(at, packet.imm);
    at += partBytes.imm;
  }
  return at - offset;
}
