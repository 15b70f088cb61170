// Polling in vain: looks after the backend now and then, and naps only where waits are long or others take the processor away.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type PollAdvice, PollPatience } from './poll-patience.ts';

/** Polls in vain, a number of times, on a clock that takes so many ns for each; returns what was advised. */
function poll(patience: PollPatience, clock: { nowNs: number }, times: number, eachNs: number): PollAdvice[] {
  return Array.from({ length: times }, () => {
    clock.nowNs += eachNs;
    return patience.failed();
  });
}

const make = (): [PollPatience, { nowNs: number }] => {
  const clock = { nowNs: 1e9 };
  return [new PollPatience(() => clock.nowNs), clock];
};

describe('polling a remote CQ in vain', () => {
  test('with the processor to itself it never naps, and looks after the backend now and then', () => {
    const [patience, clock] = make();
    const advice = poll(patience, clock, 100_000, 100);
    assert.equal(advice.includes('nap'), false);
    const looks = advice.filter((one) => one === 'look').length;
    assert.ok(looks > 100 && looks < 1000, `${looks} looks`);
  });

  test('a thread that does other things between its polls never naps, however long they take', () => {
    const [patience, clock] = make();
    assert.equal(poll(patience, clock, 10_000, 50_000).includes('nap'), false);
  });

  test('half of a wait that is always long is slept through in short naps, and the rest polled for', () => {
    const [patience, clock] = make();
    const wait = (ns: number): number => {
      const endNs = clock.nowNs + ns;
      let nappedNs = 0;
      while (clock.nowNs < endNs) {
        const [advice] = poll(patience, clock, 1, 100);
        if (advice !== 'nap') continue;
        assert.ok(patience.napNs <= 200_000);
        clock.nowNs += patience.napNs;
        nappedNs += patience.napNs;
      }
      patience.found();
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

  test('a thread whose processor is taken away time after time naps, and tries again later', () => {
    const [patience, clock] = make();
    const advice: PollAdvice[] = [];
    for (let slice = 0; slice < 20; slice++) {
      advice.push(...poll(patience, clock, 2000, 200));
      clock.nowNs += 3_000_000;
    }
    assert.ok(advice.includes('nap'));
    patience.found();
    clock.nowNs += 1e9;
    assert.equal(poll(patience, clock, 2000, 100).includes('nap'), false);
  });

  test('one interruption is no crowd', () => {
    const [patience, clock] = make();
    poll(patience, clock, 50_000, 100);
    clock.nowNs += 500_000;
    assert.equal(poll(patience, clock, 50_000, 100).includes('nap'), false);
  });
});
