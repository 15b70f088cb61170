// The watchdog: what it notices, when it says so, and what it does not take for a stuck thread.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { SignsOfLife } from './signs-of-life.ts';
import { Watchdog } from './watchdog.ts';

const intervalMs = 500;

/** A watchdog of thread 1 with a clock of its own, and what it says. */
function watch(giveUpMs = 30_000): {
  readonly said: string[];
  readonly signs: SignsOfLife;
  readonly watchdog: Watchdog;
  readonly pass: (ms: number, everyMs?: number) => void;
} {
  const said: string[] = [];
  const signs = SignsOfLife.create(2);
  let nowMs = 0;
  const options = {
    signs,
    threads: [1],
    intervalMs,
    stuckMs: 5000,
    giveUpMs,
    onStuck: (thread: number) => void said.push(`stuck ${thread}`),
    onRecovered: (thread: number, ms: number) => void said.push(`recovered ${thread} after ${ms}`),
    onGivenUp: (thread: number, ms: number) => void said.push(`given up ${thread} after ${ms}`),
  };
  const watchdog = new Watchdog(options, nowMs);
  const pass = (ms: number, everyMs = intervalMs): void => {
    for (const endMs = nowMs + ms; nowMs < endMs; ) {
      nowMs += everyMs;
      watchdog.look(nowMs);
    }
  };
  return { said, signs, watchdog, pass };
}

describe('a watchdog', () => {
  test('says once that a thread is stuck, and gives up once', () => {
    const { said, watchdog, pass } = watch();
    pass(4500);
    assert.deepEqual([said, watchdog.stuckMs(1)], [[], 0]);
    pass(500);
    assert.deepEqual(said, ['stuck 1']);
    pass(55_000);
    assert.deepEqual(said, ['stuck 1', 'given up 1 after 30000']);
    assert.equal(watchdog.stuckMs(1), 60_000);
  });

  test('says that it goes on, and counts from the beginning when it is stuck again', () => {
    const { said, signs, watchdog, pass } = watch();
    pass(29_500);
    signs.give(1);
    pass(500);
    assert.equal(watchdog.stuckMs(1), 0);
    pass(5000);
    assert.deepEqual(said, ['stuck 1', 'recovered 1 after 29500', 'stuck 1']);
  });

  test('never says anything of a thread that gives signs, however slowly the watching thread looks', () => {
    const { said, signs, pass } = watch();
    for (let times = 0; times < 100; times++) {
      signs.give(1);
      pass(4000, 4000);
    }
    assert.deepEqual(said, []);
  });

  test('does not count the time in which the watching thread stood still as well', () => {
    const { said, pass } = watch();
    // As after SIGSTOP and SIGCONT: the first look is late, by an hour.
    pass(3_600_000, 3_600_000);
    assert.deepEqual(said, []);
    pass(4000);
    assert.deepEqual(said, ['stuck 1']);
  });

  test('that is told never to give up does not', () => {
    const { said, pass } = watch(Number.POSITIVE_INFINITY);
    pass(3_600_000);
    assert.deepEqual(said, ['stuck 1']);
  });
});

test('of several threads that find one silent, one reports it, and again after its next sign', () => {
  const signs = SignsOfLife.create(3);
  const others = [new SignsOfLife(signs.memory), new SignsOfLife(signs.memory)];
  const reports = (): number => others.filter((other) => other.isFirstToReport(0)).length;
  assert.deepEqual([reports(), reports()], [1, 0]);
  signs.give(0);
  assert.deepEqual([reports(), reports()], [1, 0]);
});
