import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EventLoop } from './event-loop.ts';
import { type Draining, ResetDrain } from './reset-drain.ts';

const LIMIT_MS = 5000;
const TURN_NS = 10_000_000;

/** Delivers the given numbers of bytes, one at each check, and the last number for ever. */
class FakeConnection implements Draining {
  readonly #waiting: number[];
  checks = 0;
  isClosed = false;
  wasGivenUp = false;

  constructor(...waiting: number[]) {
    this.#waiting = waiting;
  }

  drain(): number {
    this.checks++;
    const waiting = (this.#waiting.length > 1 ? this.#waiting.shift() : this.#waiting[0]) ?? 0;
    this.isClosed = waiting === 0;
    return waiting;
  }

  giveUp(): void {
    this.isClosed = true;
    this.wasGivenUp = true;
  }
}

/** Runs the loop until all are closed; how long that took. */
function runUntilClosed(loop: EventLoop, all: readonly FakeConnection[]): number {
  const startMs = performance.now();
  while (!all.every(({ isClosed }) => isClosed)) {
    assert.ok(performance.now() - startMs < LIMIT_MS, 'they are still open');
    loop.turn(TURN_NS);
  }
  return performance.now() - startMs;
}

test('a connection is checked until all is delivered, and given up only when nothing moves', () => {
  using loop = new EventLoop();
  using resetDrain = new ResetDrain(loop);
  const moving = new FakeConnection(...Array.from({ length: 40 }, (_, index) => 40 - index), 0);
  const stuck = new FakeConnection(7);
  const atOnce = new FakeConnection(0);
  for (const connection of [moving, stuck, atOnce, moving]) resetDrain.add(connection);
  runUntilClosed(loop, [moving, stuck, atOnce]);
  assert.deepEqual([moving.checks, moving.wasGivenUp], [41, false]);
  assert.deepEqual([stuck.checks, stuck.wasGivenUp], [21, true]);
  assert.deepEqual([atOnce.checks, atOnce.wasGivenUp], [1, false]);
});

test('a connection that was closed otherwise is not drained, and one that is added later is', () => {
  using loop = new EventLoop();
  using resetDrain = new ResetDrain(loop);
  const closed = new FakeConnection(5);
  closed.isClosed = true;
  resetDrain.add(closed);
  for (let turn = 0; turn < 5; turn++) loop.turn(TURN_NS);
  const later = new FakeConnection(3, 2, 0);
  resetDrain.add(later);
  runUntilClosed(loop, [later]);
  assert.deepEqual([closed.checks, later.checks], [0, 3]);
});
