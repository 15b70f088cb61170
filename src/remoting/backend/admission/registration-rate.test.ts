// The rate of registrations: a process that registers seldom is not delayed, and none registers
// more often than the rate allows.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { storeRelease } from '../../../native/index.ts';
import { requestRing } from '../../protocol/call-protocol.ts';
import { BackendProcess } from '../fixtures/backend-process.ts';
import { RawGuest } from '../fixtures/raw-guest.ts';
import { RegistrationRate } from './registration-rate.ts';

describe('the rate of registrations', () => {
  test('lets a process register many times at once, and then as often as is allowed', () => {
    let nowMs = 5000;
    const pace = new RegistrationRate(10, () => nowMs);
    for (let times = 0; times < 40; times++) assert.equal(pace.charge(1), 0);
    assert.equal(pace.charge(1), 100);
    assert.equal(pace.charge(1), 200);
    nowMs += 300;
    assert.equal(pace.charge(1), 0);
    assert.equal(pace.charge(2), 0, 'another process pays nothing for it');
  });

  test('refuses a process that would have to wait too long, and does not charge it for that', () => {
    let nowMs = 0;
    const pace = new RegistrationRate(1, () => nowMs);
    const waits = Array.from({ length: 8 }, () => pace.charge(1));
    assert.deepEqual(waits, [0, 0, 0, 0, 1000, 2000, undefined, undefined]);
    nowMs += 1000;
    assert.equal(pace.charge(1), 2000);
  });

  test('makes a process wait after protocol errors, but not for ever', () => {
    let nowMs = 0;
    const pace = new RegistrationRate(64, () => nowMs);
    for (let times = 0; times < 7; times++) {
      assert.equal(pace.charge(1), 0);
      pace.chargeProtocolError(1);
    }
    assert.equal(pace.charge(1), 0);
    pace.chargeProtocolError(1);
    // 256 - 8 - 8 * 32
    assert.equal(pace.charge(1), (9 * 1000) / 64);
    for (let times = 0; times < 1000; times++) pace.chargeProtocolError(1);
    assert.equal(pace.charge(1), 2000);
    nowMs += 6000;
    assert.equal(pace.charge(1), 0, 'all is forgiven in time');
  });

  test('never lets a process have more than a full account and what was earned since', () => {
    const step = fc.record({ pid: fc.nat(2), afterMs: fc.nat(400), isFine: fc.boolean() });
    const perSecond = fc.integer({ min: 1, max: 100 });
    fc.assert(
      fc.property(perSecond, fc.array(step, { maxLength: 300 }), (rate, steps) => {
        let nowMs = 0;
        const pace = new RegistrationRate(rate, () => nowMs);
        const had = new Map<number, number>();
        for (const { pid, afterMs, isFine } of steps) {
          nowMs += afterMs;
          if (isFine) pace.chargeProtocolError(pid);
          const waitMs = pace.charge(pid);
          if (waitMs === undefined) continue;
          assert.ok(waitMs >= 0 && waitMs <= 2000.001);
          const count = (had.get(pid) ?? 0) + 1;
          had.set(pid, count);
          assert.ok(count <= 4 * rate + ((nowMs + waitMs) * rate) / 1000 + 0.001);
        }
      }),
    );
  });

  test('forgets processes that have ended', () => {
    let nowMs = 0;
    const pace = new RegistrationRate(1, () => nowMs);
    for (let pid = 1; pid < 10_000; pid++) {
      nowMs += 100;
      assert.equal(pace.charge(pid), 0);
    }
    assert.ok(pace.processes <= 256, `${pace.processes} accounts`);
  });
});

test('a guest that reconnects after protocol errors waits, and is admitted all the same', {
  timeout: 60_000,
}, async () => {
  await using backend = await BackendProcess.start({ registrationsPerSecond: 64 });
  const startMs = performance.now();
  const errors = 11;
  for (let times = 0; times < errors; times++) {
    using guest = RawGuest.connect(backend.socketPath);
    storeRelease(guest.world().qpWords, requestRing.produced, 1000);
    guest.backend.wake();
    while (guest.transport.takeDoorbell());
  }
  // A full account is 256, a protocol error 32. The last error may not be charged yet, nor the one
  // before when the guest reconnected.
  const owed = errors + (errors - 2) * 32 - 256;
  assert.ok(performance.now() - startMs >= (owed * 1000) / 64, 'it did not wait');
  const { accepted, refused } = await backend.status();
  assert.deepEqual([accepted, refused], [errors, 0]);
});
