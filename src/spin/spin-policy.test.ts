// How long to spin: as long as it paid off lately, and not at all while somebody else needs the
// processor.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { SpinPolicy, type SpinTuning } from './spin-policy.ts';
import { tunings } from './tunings.ts';

/** What it takes to be woken. */
const WAKE_NS = 50_000;
const STEP_NS = 100;

/**
 * One wait of so many ns, spun every 100 ns: for how long it spins. A thread that sleeps is woken
 * later.
 */
function spunNs(policy: SpinPolicy, atNs: number, waitNs: number): number {
  let nowNs = atNs;
  while (nowNs < atNs + waitNs && policy.maySpin(nowNs)) nowNs += STEP_NS;
  const spun = nowNs - atNs;
  policy.found(spun < waitNs ? atNs + waitNs + WAKE_NS : atNs + waitNs);
  return spun;
}

/** Waits so long for each of some things. Returns when the last of them was found. */
function wait(policy: SpinPolicy, waits: number, waitNs: number, startNs = 1e9): number {
  let nowNs = startNs;
  for (let count = 0; count < waits; count++) {
    policy.maySpin(nowNs);
    nowNs += waitNs;
    policy.found(nowNs);
  }
  return nowNs;
}

describe('a spin policy with a fixed time', () => {
  test('spins for so long and no longer', () => {
    const policy = new SpinPolicy(tunings.lane, 20_000);
    assert.equal(policy.maySpin(1e9), true);
    assert.equal(policy.maySpin(1e9 + 19_999), true);
    assert.equal(policy.maySpin(1e9 + 20_000), false);
  });

  test('of nothing never spins, and of all the time never sleeps', () => {
    for (const nowNs of [1, 1e9, 2e18]) {
      assert.equal(new SpinPolicy(tunings.guestCall, 0).maySpin(nowNs), false);
      assert.equal(new SpinPolicy(tunings.guestCall, Number.POSITIVE_INFINITY).maySpin(nowNs), true);
    }
  });
});

describe('a lane', () => {
  test('sleeps at once as long as nothing comes soon', () => {
    assert.equal(new SpinPolicy(tunings.lane).maySpin(1e9), false);
    const policy = new SpinPolicy(tunings.lane);
    assert.equal(policy.maySpin(wait(policy, 100, 10_000_000)), false);
  });

  test('spins while things come soon, and stops when they do not', () => {
    const policy = new SpinPolicy(tunings.lane);
    let nowNs = wait(policy, 40, 50_000);
    assert.equal(policy.maySpin(nowNs), true);
    nowNs = wait(policy, 40, 5_000_000, nowNs);
    assert.equal(policy.maySpin(nowNs), false);
    nowNs = wait(policy, 40, 50_000, nowNs);
    assert.equal(policy.maySpin(nowNs), true);
  });

  test('spins for a while and then sleeps, however soon things come', () => {
    const policy = new SpinPolicy(tunings.lane);
    const nowNs = wait(policy, 40, 200_000);
    assert.equal(policy.maySpin(nowNs), true);
    assert.equal(policy.maySpin(nowNs + 299_999), true);
    assert.equal(policy.maySpin(nowNs + 300_000), false);
  });

  test('sleeps for a short time where others have the processor now and then', () => {
    const policy = new SpinPolicy(tunings.lane);
    let nowNs = wait(policy, 40, 50_000);
    for (let round = 0; round < 100; round++) {
      policy.yielded(300_000, nowNs);
      assert.equal(policy.maySpin(nowNs), true);
      policy.yielded(4_000_000, nowNs);
      assert.equal(policy.maySpin(nowNs + 5e6 - 1), false);
      policy.found(nowNs + 5e6 - 1);
      nowNs = wait(policy, 400, 50_000, nowNs + 5e6);
    }
  });

  test('backs off where others keep the processor, for longer each time', () => {
    const policy = new SpinPolicy(tunings.lane);
    let nowNs = wait(policy, 40, 50_000);
    for (const backOffMs of [5, 10, 20, 40, 80, 160, 320, 640, 1280, 1280]) {
      const backOffNs = backOffMs * 1e6;
      policy.yielded(4_000_000, nowNs);
      assert.equal(policy.maySpin(nowNs + backOffNs - 1), false);
      policy.found(nowNs + backOffNs - 1);
      nowNs = wait(policy, 40, 50_000, nowNs + backOffNs);
      assert.equal(policy.maySpin(nowNs), true);
    }
  });
});

describe('guest and backend', () => {
  test('spin through short waits, sleep through long ones, and learn both ways', () => {
    const policy = new SpinPolicy(tunings.guestCall);
    let nowNs = 1;
    const next = (waitNs: number): number => {
      const spun = spunNs(policy, nowNs, waitNs);
      nowNs += waitNs + WAKE_NS + 1000;
      return spun;
    };
    assert.equal(next(5000), 5000);
    assert.equal(next(15_000) < 15_000, true);
    for (let times = 0; times < 10; times++) next(15_000);
    assert.equal(next(15_000), 15_000);
    for (let times = 0; times < 10; times++) next(5_000_000);
    assert.equal(next(5_000_000), 0);
    for (let times = 0; times < 10; times++) next(20_000);
    assert.equal(next(20_000), 20_000);
  });

  test('sleep through the next waits after spin misses in a row, though waits are short', () => {
    const policy = new SpinPolicy(tunings.guestCall);
    // The other side only ever goes on when this one sleeps.
    let nowNs = 1;
    let spins = 0;
    for (let times = 0; times < 200; times++) {
      for (; policy.maySpin(nowNs); nowNs += STEP_NS) spins++;
      nowNs += WAKE_NS + 1000;
      policy.found(nowNs);
      nowNs += 1000;
    }
    assert.ok(spins > 0 && spins < 20 * 110, `${spins} spins`);
  });

  test('back off after an interruption', () => {
    const policy = new SpinPolicy(tunings.guestCall);
    for (let at = 1; at < 400_000; at += 30_000) spunNs(policy, at, 20_000);
    assert.equal(policy.maySpin(500_000), true);
    assert.equal(policy.maySpin(2_000_000), false);
    policy.found(2_000_100);
    assert.equal(spunNs(policy, 2_001_000, 20_000), 0);
    for (let times = 0; times < 20; times++) spunNs(policy, 20_000_000 + times * 30_000, 20_000);
    assert.equal(spunNs(policy, 30_000_000, 20_000), 20_000);
  });

  test('go on spinning for what comes at once: one interruption says nothing of the other side', () => {
    const policy = new SpinPolicy(tunings.guestCall);
    for (let at = 1; at < 100_000; at += 10_000) spunNs(policy, at, 2000);
    assert.equal(policy.maySpin(200_000), true);
    policy.maySpin(2_000_000);
    policy.found(2_000_100);
    assert.equal(spunNs(policy, 2_001_000, 2000), 2000);
    assert.ok(spunNs(policy, 2_100_000, 50_000) <= 10_100);
  });
});

describe('a spin policy that learns, with any tuning and any history,', () => {
  const all: readonly SpinTuning[] = [tunings.lane, tunings.guestCall, tunings.backendThread];
  const waits = fc.array(
    fc.record({ waitNs: fc.nat(3_000_000), gapNs: fc.nat(2_000_000), takenNs: fc.nat(5_000_000) }),
    {
      maxLength: 60,
    },
  );
  const history = fc.record({ tuning: fc.constantFrom(...all), waits });

  /** Waits and yields as the history says. Returns when the last wait was over. */
  const live = (
    policy: SpinPolicy,
    { waits: past }: { waits: readonly { waitNs: number; gapNs: number; takenNs: number }[] },
  ) => {
    let nowNs = 1e9;
    for (const { waitNs, gapNs, takenNs } of past) {
      const endNs = nowNs + waitNs;
      while (nowNs < endNs && policy.maySpin(nowNs)) nowNs += 1000 + (gapNs > 1_900_000 ? gapNs : 0);
      policy.yielded(takenNs, nowNs);
      nowNs = Math.max(nowNs, endNs);
      policy.found(nowNs);
      nowNs += gapNs;
    }
    return nowNs;
  };

  test('spins no longer than its limit at a time', () => {
    fc.assert(
      fc.property(history, (past) => {
        const policy = new SpinPolicy(past.tuning);
        const startNs = live(policy, past);
        let nowNs = startNs;
        while (policy.maySpin(nowNs)) nowNs += 1000;
        assert.ok(nowNs - startNs <= past.tuning.maxSpinNs + 1000);
        // And does not begin again in the same wait.
        assert.equal(policy.maySpin(nowNs + past.tuning.maxSpinNs), false);
      }),
    );
  });

  test('expects no wait below nothing, or above its longest', () => {
    fc.assert(
      fc.property(history, (past) => {
        const policy = new SpinPolicy(past.tuning);
        live(policy, past);
        assert.ok(policy.averageNs >= 0 && policy.averageNs <= past.tuning.maxWaitNs);
        assert.equal(policy.isWaiting, false);
      }),
    );
  });

  test('spins again in the end when waits stay short, and sleeps in the end when they stay long', () => {
    fc.assert(
      fc.property(history, (past) => {
        const policy = new SpinPolicy(past.tuning);
        // After the longest back-off.
        let nowNs = live(policy, past) + 2 * past.tuning.backOff.longestNs;
        for (let times = 0; times < 200; times++, nowNs += 100_000) spunNs(policy, nowNs, 5000);
        assert.equal(spunNs(policy, nowNs, 5000), 5000);
        for (let times = 0; times < 200; times++) {
          nowNs += 10_000_000;
          spunNs(policy, nowNs, 5_000_000);
        }
        assert.equal(policy.maySpin(nowNs + 10_000_000), false);
      }),
    );
  });
});
