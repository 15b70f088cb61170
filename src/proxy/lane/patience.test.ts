import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Patience } from './patience.ts';

/** Waits so long for each of some things, and says whether it would still look at the end of the last wait. */
function after(patience: Patience, waits: number, waitNs: number, count: number, hasMany = false): boolean {
  let nowNs = 1e9;
  for (let wait = 0; wait < waits; wait++) {
    patience.lasts(nowNs);
    nowNs += waitNs;
    patience.found(count, hasMany ? wait : 0, nowNs);
  }
  return looks(patience, nowNs, waitNs);
}

/** Looks every 20 us for so long; whether it would go on. */
function looks(patience: Patience, startNs: number, ns: number): boolean {
  let isLooking = true;
  for (let nowNs = startNs; nowNs <= startNs + ns; nowNs += 20_000) isLooking = patience.lasts(nowNs);
  return isLooking;
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
    assert.equal(after(new Patience('auto'), 100, 10_000_000, 1), false);
  });

  test('looks while answers come one by one and soon, and stops when they do not', () => {
    const patience = new Patience('auto');
    assert.equal(after(patience, 40, 50_000, 1), true);
    assert.equal(after(patience, 40, 5_000_000, 1), false);
  });

  test('stops for a while when somebody else needs the processor', () => {
    const patience = new Patience('auto');
    assert.equal(after(patience, 40, 50_000, 1), true);
    const startNs = 1e9 + 41 * 50_000;
    patience.found(1, 0, startNs);
    assert.equal(looks(patience, startNs, 60_000), true);
    assert.equal(patience.lasts(startNs + 260_000), false);
    patience.found(1, 0, startNs + 300_000);
    assert.equal(looks(patience, startNs + 300_000, 20_000), false);
    patience.found(1, 0, startNs + 320_000);
    assert.equal(looks(patience, startNs + 200_000_000, 60_000), true);
  });

  test('does not take a nap of its own for an interruption', () => {
    const patience = new Patience('auto');
    assert.equal(after(patience, 40, 50_000, 1), true);
    const startNs = 1e9 + 41 * 50_000;
    patience.found(1, 0, startNs);
    assert.equal(looks(patience, startNs, 300_000), false);
    assert.equal(patience.lasts(startNs + 500_000), false);
    patience.found(1, 0, startNs + 520_000);
    assert.equal(looks(patience, startNs + 520_000, 60_000), true);
  });

  test('looks only briefly when it has many things to do at once, or for many', () => {
    const busy = new Patience('auto');
    assert.equal(after(busy, 40, 50_000, 10), false);
    const many = new Patience('auto');
    assert.equal(after(many, 40, 50_000, 1, true), false);
    for (const patience of [busy, many]) {
      const startNs = 1e9 + 41 * 50_000;
      patience.found(1, 0, startNs);
      assert.equal(patience.lasts(startNs), true);
      assert.equal(patience.lasts(startNs + 4999), true);
      assert.equal(patience.lasts(startNs + 5000), false);
    }
  });

  test('never looks for longer than an answer may take', () => {
    const patience = new Patience('auto');
    after(patience, 40, 50_000, 1);
    // The last wait began with the last thing that was found.
    const startNs = 1e9 + 40 * 50_000;
    assert.equal(looks(patience, startNs, 280_000), true);
    assert.equal(patience.lasts(startNs + 300_000), false);
  });
});
