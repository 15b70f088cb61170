import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Patience } from './patience.ts';

/** Waits so long for each of some things, from that moment on; when the last of them was found. */
function wait(patience: Patience, waits: number, waitNs: number, startNs = 1e9): number {
  let nowNs = startNs;
  for (let count = 0; count < waits; count++) {
    patience.lasts(nowNs);
    nowNs += waitNs;
    patience.found(nowNs);
  }
  return nowNs;
}

/** Others have the processor for so long, so many times in a row. */
function yieldTo(patience: Patience, times: number, takenNs: number, nowNs: number): void {
  for (let count = 0; count < times; count++) patience.yielded(takenNs, nowNs);
}

describe('patience', () => {
  test('that is told how long looks for so long and no longer', () => {
    const patience = new Patience(20);
    assert.equal(patience.lasts(1e9), true);
    assert.equal(patience.lasts(1e9 + 19_999), true);
    assert.equal(patience.lasts(1e9 + 20_000), false);
    assert.equal(new Patience(0).lasts(1e9), false);
  });

  test('that learns sleeps at once as long as nothing comes soon', () => {
    assert.equal(new Patience('auto').lasts(1e9), false);
    const patience = new Patience('auto');
    assert.equal(patience.lasts(wait(patience, 100, 10_000_000)), false);
  });

  test('looks while things come soon, and stops when they do not', () => {
    const patience = new Patience('auto');
    let nowNs = wait(patience, 40, 50_000);
    assert.equal(patience.lasts(nowNs), true);
    nowNs = wait(patience, 40, 5_000_000, nowNs);
    assert.equal(patience.lasts(nowNs), false);
    nowNs = wait(patience, 40, 50_000, nowNs);
    assert.equal(patience.lasts(nowNs), true);
  });

  test('looks for a while and then sleeps, however soon things come', () => {
    const patience = new Patience('auto');
    const nowNs = wait(patience, 40, 10_000);
    assert.equal(patience.lasts(nowNs), true);
    assert.equal(patience.lasts(nowNs + 49_999), true);
    assert.equal(patience.lasts(nowNs + 50_000), false);
  });

  test('goes on looking where others have the processor now and then', () => {
    const patience = new Patience('auto');
    const nowNs = wait(patience, 40, 50_000);
    for (let round = 0; round < 100; round++) {
      yieldTo(patience, 2, 4_000_000, nowNs);
      yieldTo(patience, 1, 300_000, nowNs);
    }
    assert.equal(patience.lasts(nowNs), true);
  });

  test('sleeps at once for a while where others keep the processor, for longer each time', () => {
    const patience = new Patience('auto');
    let nowNs = wait(patience, 40, 50_000);
    for (const banNs of [5e8, 1e9, 2e9, 4e9, 8e9, 8e9]) {
      yieldTo(patience, 3, 4_000_000, nowNs);
      assert.equal(patience.lasts(nowNs + banNs - 1), false);
      patience.found(nowNs + banNs - 1);
      nowNs = wait(patience, 40, 50_000, nowNs + banNs);
      assert.equal(patience.lasts(nowNs), true);
    }
    // It was quiet for longer than that.
    nowNs = wait(patience, 40, 50_000, nowNs + 1e10);
    yieldTo(patience, 3, 4_000_000, nowNs);
    assert.equal(patience.lasts(nowNs + 5e8), true);
  });
});
