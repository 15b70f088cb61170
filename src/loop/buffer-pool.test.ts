import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { BufferPool, type PooledBuffer } from './buffer-pool.ts';

describe('a pool of buffers', () => {
  test('never lends a buffer twice, and gives spare memory back to the kernel', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: -40, max: 40 }), { maxLength: 20 }), (steps) => {
        using pool = new BufferPool(4096);
        const borrowed: PooledBuffer[] = [];
        for (const step of steps) {
          for (let count = step; count > 0; count--) borrowed.push(pool.take());
          for (const buffer of borrowed.splice(0, Math.max(-step, 0))) pool.give(buffer);
          const places = new Set(borrowed.map(({ memory, offset }) => `${memory.id}:${offset}`));
          assert.equal(places.size, borrowed.length);
          assert.equal(pool.borrowedCount, borrowed.length);
        }
        for (const buffer of borrowed) pool.give(buffer);
        assert.equal(pool.borrowedCount, 0);
        assert.ok(pool.heldBytes <= 8 * 4096);
      }),
    );
  });
});
