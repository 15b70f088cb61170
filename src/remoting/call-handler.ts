// How the backend carries out one kind of call: arguments in, results out, and what it throws goes to the guest.

import type { GuestState } from './guest-state.ts';
import type { HostMemory, SharedRange } from './transport.ts';
import type { WordReader, WordWriter } from './words.ts';

export type CallHandler = (guest: GuestState, args: WordReader, results: WordWriter) => void;

export function writeRange(results: WordWriter, { range }: HostMemory): void {
  results.u32(range.id).u64(range.offset).u64(range.sizeBytes);
}

export function readRange(reader: WordReader): SharedRange {
  return { id: reader.u32(), offset: reader.u64(), sizeBytes: reader.u64() };
}
