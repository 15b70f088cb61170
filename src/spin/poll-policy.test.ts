// Misses in a row: the backend is checked at times, and naps are taken only where waits are long or
// others take the processor.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type PollAdvice, PollPolicy } from './poll-policy.ts';
import { tunings } from './tunings.ts';

/**
 * Misses a number of times, on a clock that takes so many ns for each. Returns what was advised.
 */
function poll(policy: PollPolicy, clock: { nowNs: number }, times: number, eachNs: number): PollAdvice[] {
  return Array.from({ length: times }, () => {
    clock.nowNs += eachNs;
    return policy.miss();
  });
}

const make = (): [PollPolicy, { nowNs: number }] => {
  const clock = { nowNs: 1e9 };
  return [new PollPolicy(tunings.guestPoll, () => clock.nowNs), clock];
};

describe('a guest that polls a remote CQ and finds nothing', () => {
  test('never naps with the processor to itself, and checks the backend at times', () => {
    const [policy, clock] = make();
    const advice = poll(policy, clock, 100_000, 100);
    assert.equal(advice.includes('nap'), false);
    const checks = advice.filter((one) => one === 'check').length;
    assert.ok(checks > 100 && checks < 1000, `${checks} checks`);
  });

  test('never naps when it does other things between its polls, however long they take', () => {
    const [policy, clock] = make();
    assert.equal(poll(policy, clock, 10_000, 50_000).includes('nap'), false);
  });

  test('sleeps through half of a wait that is always long in short naps, and spins through the rest', () => {
    const [policy, clock] = make();
    const wait = (ns: number): number => {
      const endNs = clock.nowNs + ns;
      let nappedNs = 0;
      while (clock.nowNs < endNs) {
        const [advice] = poll(policy, clock, 1, 100);
        if (advice !== 'nap') continue;
        assert.ok(policy.napNs <= 200_000);
        clock.nowNs += policy.napNs;
        nappedNs += policy.napNs;
      }
      policy.hit();
      return nappedNs;
    };
    assert.equal(wait(1e6), 0);
    assert.equal(wait(1e6), 0);
    for (let times = 0; times < 10; times++) {
      const nappedNs = wait(1e6);
      assert.ok(nappedNs > 300_000 && nappedNs < 500_000, `${nappedNs} ns`);
    }
    // One short wait, and no nap is worth it any more.
    wait(20_000);
    assert.equal(wait(1e6), 0);
  });

  test('naps when it is interrupted time after time, and spins again later', () => {
    const [policy, clock] = make();
    const advice: PollAdvice[] = [];
    for (let slice = 0; slice < 20; slice++) {
      advice.push(...poll(policy, clock, 2000, 200));
      clock.nowNs += 3_000_000;
    }
    assert.ok(advice.includes('nap'));
    policy.hit();
    clock.nowNs += 1e9;
    assert.equal(poll(policy, clock, 2000, 100).includes('nap'), false);
  });

  test('does not nap after one interruption', () => {
    const [policy, clock] = make();
    poll(policy, clock, 50_000, 100);
    clock.nowNs += 500_000;
    assert.equal(poll(policy, clock, 50_000, 100).includes('nap'), false);
  });
});
