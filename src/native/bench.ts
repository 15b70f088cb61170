// What a crossing costs. Lives here because only src/native/ may call the addon.

import { addon } from './addon.ts';
import { SharedMemory } from './memory.ts';
import { monotonicNs } from './thread.ts';

/**
 * ns per call: bare, or with five arguments that are checked against a memory, and nothing done.
 */
export function measureCrossing(kind: 'crossing' | 'arguments', iterations: number): number {
  using memory = SharedMemory.create({ sizeBytes: 4096 });
  const { id } = memory;
  const startNs = monotonicNs();
  if (kind === 'crossing') for (let i = 0; i < iterations; i++) addon.nothing();
  else for (let i = 0; i < iterations; i++) addon.copy(id, 64, id, 128, 0);
  return (monotonicNs() - startNs) / iterations;
}
