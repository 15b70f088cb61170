// How long to look: as long as it paid off lately, not at all while somebody else needs the processor.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { AdaptiveWait, type WaitMode } from './adaptive-wait.ts';

/** What it takes to be woken. */
const WAKE_NS = 50_000;

/** One wait of so many ns, looked at every 100 ns: for how long it would have looked. Who sleeps is woken later. */
function lookedNs(wait: AdaptiveWait, atNs: number, waitNs: number): number {
  let nowNs = atNs;
  while (nowNs < atNs + waitNs && wait.mayLook(nowNs)) nowNs += 100;
  const looked = nowNs - atNs;
  wait.found(looked < waitNs ? atNs + waitNs + WAKE_NS : atNs + waitNs);
  return looked;
}

describe('adaptive waiting', () => {
  test('a mode that is none is refused', () => {
    assert.throws(() => new AdaptiveWait('often' as WaitMode), { code: 'MILLRACE_ERR_USAGE' });
  });

  test('the pure modes always and never look', () => {
    assert.equal(new AdaptiveWait('spin').mayLook(1), true);
    assert.equal(new AdaptiveWait('event').mayLook(1), false);
  });

  test('short waits are looked through, long ones slept through, and it learns both ways', () => {
    const wait = new AdaptiveWait();
    let nowNs = 1;
    const next = (waitNs: number): number => {
      const looked = lookedNs(wait, nowNs, waitNs);
      nowNs += waitNs + WAKE_NS + 1000;
      return looked;
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

  test('looking in vain time after time ends it for a while, though waits are short', () => {
    const wait = new AdaptiveWait();
    // The other side only ever goes on when this one sleeps.
    let nowNs = 1;
    let lookedInVain = 0;
    for (let times = 0; times < 200; times++) {
      for (; wait.mayLook(nowNs); nowNs += 100) lookedInVain++;
      nowNs += WAKE_NS + 1000;
      wait.found(nowNs);
      nowNs += 1000;
    }
    assert.ok(lookedInVain < 20 * 110, `looked ${lookedInVain} times`);
    assert.ok(lookedInVain > 0);
  });

  test('who was interrupted while looking sleeps at once for a while', () => {
    const wait = new AdaptiveWait();
    for (let at = 1; at < 400_000; at += 30_000) lookedNs(wait, at, 20_000);
    assert.equal(wait.mayLook(500_000), true);
    assert.equal(wait.mayLook(2_000_000), false);
    wait.found(2_000_100);
    assert.equal(lookedNs(wait, 2_001_000, 20_000), 0);
    for (let times = 0; times < 20; times++) lookedNs(wait, 20_000_000 + times * 30_000, 20_000);
    assert.equal(lookedNs(wait, 30_000_000, 20_000), 20_000);
  });

  test('but it goes on looking for what comes at once: one interruption says nothing of the other side', () => {
    const wait = new AdaptiveWait();
    for (let at = 1; at < 100_000; at += 10_000) lookedNs(wait, at, 2000);
    assert.equal(wait.mayLook(200_000), true);
    wait.mayLook(2_000_000);
    wait.found(2_000_100);
    assert.equal(lookedNs(wait, 2_001_000, 2000), 2000);
    assert.ok(lookedNs(wait, 2_100_000, 50_000) <= 10_100);
  });
});
