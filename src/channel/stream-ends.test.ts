// Both sides of a stream, and all orders in which their programs end and their records arrive.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { explore } from './fixtures/explore.ts';
import { StreamEnds, says } from './stream-ends.ts';

const actions = ['shut', 'reset', 'credit', 'say', 'hear'] as const;
interface Step {
  readonly side: 0 | 1;
  readonly action: (typeof actions)[number];
}
const steps: readonly Step[] = ([0, 1] as const).flatMap((side) => actions.map((action) => ({ side, action })));

class Side {
  readonly ends: StreamEnds;
  /** In the ring towards the other side. */
  readonly records: number[] = [];
  timesFree = 0;
  credits = 0;
  isWrong = false;
  #hasSaidEnd = false;

  constructor(isOpener: boolean) {
    this.ends = new StreamEnds({ onToSay: () => {}, onNameFree: () => this.timesFree++ });
    this.ends.say(isOpener ? says.open : says.opened);
  }

  get hasEnded(): boolean {
    return this.ends.isResetHere || this.ends.isShutHere;
  }

  /** False when this cannot be now. */
  do(action: Step['action'], other: Side): boolean {
    switch (action) {
      case 'shut':
        if (!this.ends.maySend) return false;
        this.ends.shutHere();
        return true;
      case 'reset':
        if (this.ends.isResetHere) return false;
        this.ends.resetHere();
        return true;
      case 'credit':
        if (this.credits === 1 || !this.ends.mayReceive || this.ends.isResetHere) return false;
        this.credits++;
        this.ends.say(says.credit);
        return true;
      case 'say':
        return this.#say();
      default:
        return this.#hear(other.records.shift());
    }
  }

  #say(): boolean {
    const flag = this.ends.saying & -this.ends.saying;
    if (flag === 0) return false;
    // Nothing is said of a free name, and no second end where both sides have one.
    if (this.timesFree > 0 || (flag >= says.shut && this.#hasSaidEnd && !this.ends.mayReceive)) this.isWrong = true;
    if (flag >= says.shut) this.#hasSaidEnd = true;
    this.records.push(flag);
    this.ends.said(flag);
    return true;
  }

  #hear(flag: number | undefined): boolean {
    if (flag === undefined) return false;
    if (this.timesFree > 0) {
      // What a link takes as a lie of its peer.
      if (flag !== says.credit && flag !== says.reset) this.isWrong = true;
    } else if (flag === says.shut) {
      if (!this.ends.mayReceive) this.isWrong = true;
      this.ends.shutThere();
    } else if (flag === says.reset) {
      this.ends.resetThere();
    }
    return true;
  }

  describe(): string {
    const { saying, isShutHere, isResetHere, isShutThere, isResetThere } = this.ends;
    const flags = [isShutHere, isResetHere, isShutThere, isResetThere].map(Number).join('');
    return `${saying} ${flags} ${this.timesFree} ${this.credits} [${this.records.join()}]`;
  }
}

/** Undefined when one of the steps is not possible. */
function replay(history: readonly Step[]): readonly [Side, Side] | undefined {
  const sides = [new Side(true), new Side(false)] as const;
  const isPossible = history.every(({ side, action }) => sides[side].do(action, sides[1 - side]));
  return isPossible ? sides : undefined;
}

function isQuiet(sides: readonly [Side, Side]): boolean {
  return sides.every(({ ends, records }) => ends.saying === 0 && records.length === 0);
}

function isBad(sides: readonly [Side, Side]): boolean {
  if (sides.some(({ isWrong, timesFree }) => isWrong || timesFree > 1)) return true;
  const isOver = sides.every(({ hasEnded }) => hasEnded) && isQuiet(sides);
  return isOver && sides.some(({ timesFree }) => timesFree !== 1);
}

test('however a stream ends, both sides give its name back once, and say nothing of it after', () => {
  let ways = 0;
  const found = explore<readonly Step[]>({
    initial: [],
    next: (history) => steps.map((step) => [...history, step]).filter((after) => replay(after) !== undefined),
    key: (history) =>
      replay(history)
        ?.map((side) => side.describe())
        .join(' | ') ?? '',
    isBad: (history) => {
      const sides = replay(history);
      if (sides === undefined) return true;
      if (sides.every(({ timesFree }) => timesFree === 1)) ways++;
      return isBad(sides);
    },
  });
  assert.deepEqual(found.trace.at(-1) ?? [], []);
  assert.ok(found.states > 1000 && ways > 100, `${found.states} states, ${ways} of them ended`);
});

test('a call that is refused gives its name back on both sides', () => {
  const [caller, callee] = [new Side(true), new Side(false)];
  callee.ends.saying = 0;
  caller.do('say', callee);
  callee.do('hear', caller);
  callee.ends.refuseHere();
  callee.do('say', caller);
  assert.deepEqual(callee.records.splice(0), [says.refused]);
  caller.ends.resetThere();
  caller.do('say', callee);
  callee.do('hear', caller);
  assert.deepEqual([caller.timesFree, callee.timesFree], [1, 1]);
});

test('after the peer is gone, nothing is said and no name is given back', () => {
  const side = new Side(true);
  side.ends.abandon();
  side.ends.resetHere();
  side.ends.shutThere();
  assert.deepEqual([side.ends.saying, side.timesFree], [0, 0]);
});
