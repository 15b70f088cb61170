import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Outcome } from './conversation.ts';
import { complaint, directComplaint } from './judge.ts';
import type { Fault } from './plan.ts';

const killed: Fault = { kind: 'daemon killed', host: 'a', startMs: 10_000, endMs: 12_000, metMs: 13_000 };
const cut: Fault = { ...killed, kind: 'wire cut' };
const bounds = { lateMs: 5000, tooLongMs: 8000 };

function outcome(given: Partial<Outcome>): Outcome {
  const about = { end: 'client', behaviour: 'bulk', seed: 1, detail: 'why', bytes: 0 } as const;
  return { ...about, ending: 'reset', startMs: 9000, endMs: 11_000, ...given };
}

describe('the judge', () => {
  test('wrong bytes, stuck connections and strange errors are never right', () => {
    for (const ending of ['wrong', 'stuck', 'failed'] as const) {
      assert.match(complaint(outcome({ ending }), [killed], bounds) ?? '', /bulk \(seed 1\) at its client .*: why/);
    }
  });

  test('a reset without a dead daemon is not right', () => {
    assert.ok(complaint(outcome({}), [], bounds) !== null);
    assert.ok(complaint(outcome({}), [cut], bounds) !== null);
  });

  test('a connection that ended before the daemon died, or began after it was back, must not be reset', () => {
    assert.ok(complaint(outcome({ endMs: 9500 }), [killed], bounds) !== null);
    assert.ok(complaint(outcome({ startMs: 13_500, endMs: 14_000 }), [killed], bounds) !== null);
  });

  test('a reset that comes too late is not right', () => {
    assert.ok(complaint(outcome({ endMs: 20_000 }), [killed], bounds) !== null);
  });

  test('a cut that lasted longer than streams wait may reset them', () => {
    const long = { ...cut, endMs: 19_000, metMs: 19_000 };
    assert.equal(complaint(outcome({ endMs: 20_000 }), [long], bounds), null);
    assert.ok(complaint(outcome({ endMs: 20_000 }), [{ ...long, kind: 'packet loss' }], bounds) !== null);
  });

  test('a direct connection must end exactly, unless a cut wire has lost what its other end reset', () => {
    for (const ending of ['reset', 'stuck'] as const) {
      assert.ok(directComplaint(outcome({ ending }), [killed, cut]) !== null);
      const waits = outcome({ ending, behaviour: 'resetByServer' });
      assert.ok(directComplaint(waits, [killed]) !== null);
      assert.equal(directComplaint(waits, [cut]), null);
    }
    assert.ok(directComplaint(outcome({ ending: 'wrong', behaviour: 'abort' }), [cut]) !== null);
    assert.equal(directComplaint(outcome({ ending: 'exact' }), []), null);
  });

  test('a reset while a daemon is dead is right, and so is what ends exactly', () => {
    assert.equal(complaint(outcome({}), [cut, killed], bounds), null);
    assert.equal(complaint(outcome({ startMs: 12_500, endMs: 16_000 }), [killed], bounds), null);
    assert.equal(complaint(outcome({ ending: 'exact' }), [], bounds), null);
  });
});
