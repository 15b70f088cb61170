// How two QPs find each other: who calls whom, what they say first, and who is kept waiting for a QP that is not ready.

import { formatGid, type Gid, gidBytes } from '../../verbs/index.ts';
import { type FaultPlan, isLossy } from './fault-plan.ts';
import type { LinkedQp } from './linked-qp.ts';

/** The first message on every connection, and the answer to it: 16 little-endian words. */
export const HELLO_BYTES = 64;
const MAGIC = 0x3148_524d; // "MRH1"

export interface Hello {
  /** 0: a question or a yes; otherwise why not. */
  readonly refusal: number;
  /** This side's fault plan loses frames: both send again after a time, and check sums. */
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

/** Where a device is. */
export interface Place {
  readonly gid: Gid;
  readonly lid: number;
}

function key({ gid, lid }: Place, qpNumber: number): string {
  return `${formatGid(gidBytes(gid))} ${lid} ${qpNumber}`;
}

/** Of two that look for each other, exactly one calls. */
export function isDialer(here: Place, qp: LinkedQp): boolean {
  const { peerName } = qp;
  if (peerName === undefined) return false;
  const there = { gid: peerName.path.gid, lid: peerName.path.lid ?? 0 };
  return key(here, qp.number) < key(there, peerName.qpNumber);
}

/** Whether the one who says hello is the one the QP was told to expect. */
export function isExpected(qp: LinkedQp, hello: Hello): boolean {
  const { peerName } = qp;
  if (peerName === undefined || qp.number !== hello.toQp || qp.link !== undefined) return false;
  const expected = key({ gid: peerName.path.gid, lid: peerName.path.lid ?? 0 }, peerName.qpNumber);
  return expected === key({ gid: hello.fromGid, lid: hello.fromLid }, hello.fromQp);
}

export function helloFrom(here: Place, qp: LinkedQp, faults: FaultPlan | undefined): Hello {
  const { gid, lid } = here;
  const toQp = qp.peerName?.qpNumber ?? 0;
  return { refusal: 0, isLossy: isLossy(faults), fromQp: qp.number, toQp, fromLid: lid, fromGid: gid };
}

/** A caller whose QP here is not ready yet waits this long. */
export const PARKED_NS = 10e9;
/** More callers than this are sent away. */
export const MAX_PARKED = 4096;
/** How long a caller waits before it calls again. */
export const REDIAL_NS = 5e6;
