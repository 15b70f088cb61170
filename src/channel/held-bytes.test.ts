// Held bytes come out as they went in, and buffers go back to the pool when they are empty.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { BufferPool } from '../loop/index.ts';
import { SharedMemory } from '../native/index.ts';
import { HeldBytes } from './held-bytes.ts';

const step = fc.tuple(fc.constantFrom('append', 'take', 'clear'), fc.nat({ max: 300 }));

describe('held bytes', () => {
  test('come out in order, and hold no more buffers than they fill', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 100 }), (steps) => {
        using pool = new BufferPool(128);
        using from = SharedMemory.create({ sizeBytes: 4096 });
        const held = new HeldBytes(pool);
        const bytes = new Uint8Array(from.buffer);
        let expected: number[] = [];
        let next = 0;
        for (const [what, size] of steps) {
          if (what === 'append') {
            for (let index = 0; index < size; index++) bytes[index] = next + index;
            held.append(from, 0, size);
            expected.push(...bytes.subarray(0, size));
            next += size;
          } else if (what === 'take' && held.count > 0) {
            const part = Math.min(size, held.size);
            const seen = new Uint8Array(held.memory.buffer, held.offset, part);
            assert.deepEqual([...seen], expected.slice(0, part));
            held.take(part);
            expected = expected.slice(part);
          } else if (what === 'clear' && size < 30) {
            held.clear();
            expected = [];
          }
          assert.equal(held.count, expected.length);
          assert.ok(pool.borrowedCount <= Math.ceil(held.count / 128) + 1);
          if (held.count === 0) assert.equal(pool.borrowedCount, 0);
        }
        held.clear();
        assert.equal(pool.borrowedCount, 0);
      }),
      { numRuns: 200 },
    );
  });
});
