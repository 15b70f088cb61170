// The pace of registrations: honest processes never notice it, and nobody comes more often than it allows.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { requestRing } from '../protocol/call-protocol.ts';
import { BackendProcess } from './fixtures/backend-process.ts';
import { RawGuest } from './fixtures/raw-guest.ts';
import { RegistrationPace } from './registration-pace.ts';

describe('the pace of registrations', () => {
  test('lets a process register many times at once, and then as often as is allowed', () => {
    let nowMs = 5000;
    const pace = new RegistrationPace(10, () => nowMs);
    for (let times = 0; times < 40; times++) assert.equal(pace.charge(1), 0);
    assert.equal(pace.charge(1), 100);
    assert.equal(pace.charge(1), 200);
    nowMs += 300;
    assert.equal(pace.charge(1), 0);
    assert.equal(pace.charge(2), 0, 'another process pays nothing for it');
  });

  test('refuses a process that would have to wait too long, and does not charge it for that', () => {
    let nowMs = 0;
    const pace = new RegistrationPace(1, () => nowMs);
    const waits = Array.from({ length: 8 }, () => pace.charge(1));
    assert.deepEqual(waits, [0, 0, 0, 0, 1000, 2000, undefined, undefined]);
    nowMs += 1000;
    assert.equal(pace.charge(1), 2000);
  });

  test('makes a process that broke the rules wait, but never for ever', () => {
    let nowMs = 0;
    const pace = new RegistrationPace(64, () => nowMs);
    for (let times = 0; times < 7; times++) {
      assert.equal(pace.charge(1), 0);
      pace.fine(1);
    }
    assert.equal(pace.charge(1), 0);
    pace.fine(1);
    // 256 - 8 - 8 * 32
    assert.equal(pace.charge(1), (9 * 1000) / 64);
    for (let times = 0; times < 1000; times++) pace.fine(1);
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
        const pace = new RegistrationPace(rate, () => nowMs);
        const had = new Map<number, number>();
        for (const { pid, afterMs, isFine } of steps) {
          nowMs += afterMs;
          if (isFine) pace.fine(pid);
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

  test('forgets processes that are gone', () => {
    let nowMs = 0;
    const pace = new RegistrationPace(1, () => nowMs);
    for (let pid = 1; pid < 10_000; pid++) {
      nowMs += 100;
      assert.equal(pace.charge(pid), 0);
    }
    assert.ok(pace.processes <= 256, `${pace.processes} accounts`);
  });
});

test('a guest that lies and comes back waits, and is let in all the same', { timeout: 60_000 }, async () => {
  await using backend = await BackendProcess.start({ registrationsPerSecond: 64 });
  const startMs = performance.now();
  const lies = 11;
  for (let times = 0; times < lies; times++) {
    using guest = RawGuest.connect(backend.socketPath);
    Atomics.store(guest.world().qpWords, requestRing.produced, 1000);
    guest.caller.wakeBackend();
    while (guest.transport.take());
  }
  // A full account is 256, a lie 32. The last lie may not be charged yet, nor the one before when the guest came back.
  const owed = lies + (lies - 2) * 32 - 256;
  assert.ok(performance.now() - startMs >= (owed * 1000) / 64, 'it did not wait');
  const { accepted, refused } = await backend.status();
  assert.deepEqual([accepted, refused], [lies, 0]);
});
