// What two daemons know a connection between their hosts by. Nobody can work it out who does not
// hold a socket of the connection.

import { hash, timingSafeEqual } from 'node:crypto';
import type { Identity } from './pairing.ts';

/** What a connection is known by, if its end was the one that connected, or that accepted. */
export interface Candidate {
  /** 32 hexadecimal digits. Peers are told it. */
  readonly key: string;
  /** Nobody is told it. */
  readonly secret: Uint8Array;
  /** What the libraries at the two ends know each other by. */
  readonly token: bigint;
  /** That it connected. */
  readonly hasConnected: boolean;
}

/**
 * From its socket an end does not know whether it connected, see bpf/direct.bpf.c. One of its two
 * candidates is one of the other end's, too. Rings of another size cannot be mirrored, so
 * ends with those have no candidate in common.
 */
export function candidatesOf({ iss, irs }: Identity, ringBytes: number): readonly Candidate[] {
  const ends = [
    { start: iss, hasConnected: false },
    { start: (iss + 1) >>> 0, hasConnected: true },
  ];
  return ends.map(({ start, hasConnected }) => ({ ...candidateOf(start, irs, ringBytes), hasConnected }));
}

function candidateOf(one: number, other: number, ringBytes: number): Omit<Candidate, 'hasConnected'> {
  const starts = Uint32Array.of(Math.min(one, other), Math.max(one, other), ringBytes);
  const digest = hash('sha512', Buffer.concat([Buffer.from('millrace direct'), Buffer.from(starts.buffer)]), 'buffer');
  return { key: digest.toString('hex', 0, 16), secret: digest.subarray(16, 32), token: digest.readBigUInt64LE(32) };
}

/**
 * By which the daemon `from` shows the daemon `to` that it has an end, too. It is good between
 * these two alone: who is shown one cannot show it to others.
 *
 * The secret has one length and half of the digest is kept back, so nobody can extend what was
 * hashed, and this is as good as an HMAC, which takes Node 20 times as long.
 */
export function proofOf({ secret }: Candidate, from: string, to: string): string {
  return hash('sha256', Buffer.concat([secret, Buffer.from(`${from} ${to}`)]), 'hex').slice(0, 32);
}

export function isProof(proof: string, candidate: Candidate, from: string, to: string): boolean {
  const expected = Buffer.from(proofOf(candidate, from, to));
  const shown = Buffer.from(proof);
  return shown.length === expected.length && timingSafeEqual(shown, expected);
}
