import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EventLoop } from './event-loop.ts';
import { type Dying, LastWords } from './last-words.ts';

const LIMIT_MS = 5000;
const TURN_NS = 10_000_000;

/** Delivers the given numbers of bytes, one at each look, and what comes last for ever. */
class Patient implements Dying {
  readonly #waiting: number[];
  looks = 0;
  isClosed = false;
  wasGivenUp = false;

  constructor(...waiting: number[]) {
    this.#waiting = waiting;
  }

  deliverLast(): number {
    this.looks++;
    const waiting = (this.#waiting.length > 1 ? this.#waiting.shift() : this.#waiting[0]) ?? 0;
    this.isClosed = waiting === 0;
    return waiting;
  }

  giveUp(): void {
    this.isClosed = true;
    this.wasGivenUp = true;
  }
}

/** Runs the lane until all are closed; how long that took. */
function runUntilClosed(lane: EventLoop, all: readonly Patient[]): number {
  const startMs = performance.now();
  while (!all.every(({ isClosed }) => isClosed)) {
    assert.ok(performance.now() - startMs < LIMIT_MS, 'they are still open');
    lane.turn(TURN_NS);
  }
  return performance.now() - startMs;
}

test('looks until all is delivered, and gives up only on who does not move', () => {
  using lane = new EventLoop();
  using lastWords = new LastWords(lane);
  const moving = new Patient(...Array.from({ length: 40 }, (_, index) => 40 - index), 0);
  const stuck = new Patient(7);
  const atOnce = new Patient(0);
  for (const one of [moving, stuck, atOnce, moving]) lastWords.lookAfter(one);
  runUntilClosed(lane, [moving, stuck, atOnce]);
  assert.deepEqual([moving.looks, moving.wasGivenUp], [41, false]);
  assert.deepEqual([stuck.looks, stuck.wasGivenUp], [21, true]);
  assert.deepEqual([atOnce.looks, atOnce.wasGivenUp], [1, false]);
});

test('who was closed otherwise is not looked at, and another one is looked after as well', () => {
  using lane = new EventLoop();
  using lastWords = new LastWords(lane);
  const closed = new Patient(5);
  closed.isClosed = true;
  lastWords.lookAfter(closed);
  for (let turn = 0; turn < 5; turn++) lane.turn(TURN_NS);
  const later = new Patient(3, 2, 0);
  lastWords.lookAfter(later);
  runUntilClosed(lane, [later]);
  assert.deepEqual([closed.looks, later.looks], [0, 3]);
});
