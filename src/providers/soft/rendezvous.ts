// The rendezvous of two QPs: which of them dials, the hello that both send, and which hello a QP
// expects.

import { formatGid, type Gid, gidBytes } from '../../verbs/index.ts';
import { type FaultPlan, isLossy } from './fault-plan.ts';
import type { LinkedQp } from './linked-qp.ts';

/** The first message on every connection, and the answer to it: 16 little-endian words. */
export const HELLO_BYTES = 64;
/** The digit counts up with each change of the frames. */
const MAGIC = 0x3248_524d; // "MRH2"

export interface Hello {
  /** 0, or why the acceptor refuses. */
  readonly refusal: number;
  /**
   * This side's fault plan loses frames: both sides then retransmit after a time, and check sums.
   */
  readonly isLossy: boolean;
  readonly fromQp: number;
  readonly toQp: number;
  readonly fromLid: number;
  readonly fromGid: Gid;
}

export function encodeHello(hello: Hello): Uint8Array {
  const bytes = new Uint8Array(HELLO_BYTES);
  const words = new DataView(bytes.buffer);
  words.setUint32(0, MAGIC, true);
  words.setUint32(4, hello.refusal, true);
  words.setUint32(8, hello.isLossy ? 1 : 0, true);
  words.setUint32(12, hello.fromQp, true);
  words.setUint32(16, hello.toQp, true);
  words.setUint32(20, hello.fromLid, true);
  bytes.set(gidBytes(hello.fromGid), 32);
  return bytes;
}

/** Undefined when these bytes are no hello. */
export function decodeHello(bytes: Uint8Array): Hello | undefined {
  if (bytes.length < HELLO_BYTES) return undefined;
  const words = new DataView(bytes.buffer, bytes.byteOffset, HELLO_BYTES);
  const [fromQp, toQp] = [words.getUint32(12, true), words.getUint32(16, true)];
  const fromLid = words.getUint32(20, true);
  if (words.getUint32(0, true) !== MAGIC || words.getUint32(8, true) > 1) return undefined;
  if (fromQp > 0xff_ffff || toQp > 0xff_ffff || fromLid > 0xffff) return undefined;
  return {
    refusal: words.getUint32(4, true),
    isLossy: words.getUint32(8, true) === 1,
    fromQp,
    toQp,
    fromLid,
    fromGid: formatGid(bytes.subarray(32, 48)),
  };
}

/** The address of a device. */
interface DeviceAddress {
  readonly gid: Gid;
  readonly lid: number;
}

function key({ gid, lid }: DeviceAddress, qpNumber: number): string {
  return `${formatGid(gidBytes(gid))} ${lid} ${qpNumber}`;
}

/** Exactly one of two QPs dials. */
export function isDialer(here: DeviceAddress, qp: LinkedQp): boolean {
  const { peerAddress } = qp;
  if (peerAddress === undefined) return false;
  const there = { gid: peerAddress.path.gid, lid: peerAddress.path.lid ?? 0 };
  return key(here, qp.number) < key(there, peerAddress.qpNumber);
}

/** Whether a hello comes from the peer that the QP was connected to by `modify`. */
export function isExpected(qp: LinkedQp, hello: Hello): boolean {
  const { peerAddress } = qp;
  if (peerAddress === undefined || qp.number !== hello.toQp || qp.link !== undefined) return false;
  const expected = key({ gid: peerAddress.path.gid, lid: peerAddress.path.lid ?? 0 }, peerAddress.qpNumber);
  return expected === key({ gid: hello.fromGid, lid: hello.fromLid }, hello.fromQp);
}

export function helloFrom(here: DeviceAddress, qp: LinkedQp, faults: FaultPlan | undefined): Hello {
  const { gid, lid } = here;
  const toQp = qp.peerAddress?.qpNumber ?? 0;
  return { refusal: 0, isLossy: isLossy(faults), fromQp: qp.number, toQp, fromLid: lid, fromGid: gid };
}

/** How long an accepted connection waits for its QP. */
export const MAX_PENDING_NS = 10e9;
/** More accepted connections than this are closed at once. */
export const MAX_PENDING = 4096;
/** How long a dialer waits before it dials again. */
export const REDIAL_NS = 5e6;
