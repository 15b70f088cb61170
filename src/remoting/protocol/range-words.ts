// A range of shared memory as words: the number of its area, its offset and its length.

import type { HostMemory, SharedRange } from './transport.ts';
import type { WordReader, WordWriter } from './words.ts';

export function writeRange(results: WordWriter, { range }: HostMemory): void {
  results.u32(range.id).u64(range.offset).u64(range.sizeBytes);
}

export function readRange(reader: WordReader): SharedRange {
  return { id: reader.u32(), offset: reader.u64(), sizeBytes: reader.u64() };
}
