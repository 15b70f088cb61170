// The source of faults by itself: the same for a seed, and true to its rates.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { SharedMemory } from '../../native/index.ts';
import { type FaultPlan, FaultSource } from './fault-plan.ts';
import { Pieces } from './pieces.ts';

/** What becomes of a hundred frames. */
function fatesOf(plan: FaultPlan, stream: number): string[] {
  using memory = SharedMemory.create({ sizeBytes: 4096 });
  const source = new FaultSource(plan, stream);
  const fates: string[] = [];
  for (let index = 0; index < 100; index++) {
    const frame = new Pieces();
    frame.add(memory, 0, 64);
    frame.add(memory, 128, 100);
    const fate = source.next(frame);
    const [first] = frame.memories;
    const bytes = first === undefined ? '' : Buffer.from(first.buffer, 0, 164).toString('hex');
    fates.push(`${JSON.stringify(fate)} ${frame.totalBytes} ${bytes}`);
  }
  source.close();
  return fates;
}

const rate = fc.double({ min: 0, max: 0.3, noNaN: true });
const plans = fc.record({
  seed: fc.integer(),
  drop: rate,
  duplicate: rate,
  corrupt: rate,
  disconnect: rate,
  delay: fc.record({ rate, maxMs: fc.nat(50) }),
});

describe('a fault source', () => {
  test('does the same for the same seed and link', () => {
    fc.assert(
      fc.property(plans, fc.nat(100), (plan, stream) => {
        assert.deepEqual(fatesOf(plan, stream), fatesOf(plan, stream));
      }),
      { numRuns: 20 },
    );
  });

  test('does something else for another seed, or on another link', () => {
    const plan = { seed: 5, drop: 0.5 };
    assert.notDeepEqual(fatesOf(plan, 0), fatesOf({ ...plan, seed: 6 }, 0));
    assert.notDeepEqual(fatesOf(plan, 0), fatesOf(plan, 1));
  });

  test('keeps to its rates', () => {
    for (const drop of [0, 0.25, 1]) {
      let dropped = 0;
      for (let stream = 0; stream < 50; stream++) {
        dropped += fatesOf({ seed: 1, drop }, stream).filter((fate) => fate.includes('drop')).length;
      }
      assert.ok(Math.abs(dropped / 5000 - drop) < 0.05, `${dropped} of 5000 at a rate of ${drop}`);
    }
  });

  test('a rate does not shift the sequence of another', () => {
    const isDropped = (plan: FaultPlan): boolean[] => fatesOf(plan, 0).map((fate) => fate.includes('drop'));
    const [alone, together] = [isDropped({ seed: 9, drop: 0.3 }), isDropped({ seed: 9, drop: 0.3, duplicate: 0.5 })];
    assert.deepEqual(alone, together);
  });
});
