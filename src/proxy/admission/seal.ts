// A sealed sequence number: who heard a SYN says so before the sender tells its sequence number,
// and cannot have learned it from that.

import { createHash, randomBytes } from 'node:crypto';

export function makeKey(): string {
  return randomBytes(16).toString('hex');
}

export function sealOf(sequence: number, key: string): string {
  return createHash('sha256').update(`${sequence} ${key}`).digest('hex');
}
