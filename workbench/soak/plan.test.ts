import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { faultKinds, type PlannedFault, planFaults } from './plan.ts';

const options = { seed: 7, deadMs: 2000, mostRestMs: 1000 };

function first(count: number, given: Partial<typeof options> = {}): PlannedFault[] {
  return planFaults({ ...options, ...given })
    .take(count)
    .toArray();
}

describe('the plan of faults', () => {
  test('is the same for the same seed, and another for another', () => {
    assert.deepEqual(first(50), first(50));
    assert.notDeepEqual(first(50), first(50, { seed: 8 }));
  });

  test('has every kind in every round', () => {
    const plan = first(faultKinds.length * 20);
    for (let round = 0; round < 20; round++) {
      const kinds = plan.slice(round * faultKinds.length, (round + 1) * faultKinds.length).map(({ kind }) => kind);
      assert.deepEqual(new Set(kinds), new Set(faultKinds));
    }
  });

  test('only long pauses are longer than a silent peer is waited for', () => {
    for (const { kind, durationMs, restMs } of first(500)) {
      assert.ok(
        kind === 'daemon paused long' ? durationMs > options.deadMs : durationMs <= 2000,
        `${kind} ${durationMs}`,
      );
      assert.ok(restMs >= 200 && restMs <= options.mostRestMs);
    }
  });
});
