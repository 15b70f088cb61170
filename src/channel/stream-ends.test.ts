// Both sides of a stream, in all orders in which their programs end and their records arrive.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { explore } from './fixtures/explore.ts';
import { recordFlags, StreamEnds } from './stream-ends.ts';

const actions = ['shut', 'reset', 'credit', 'write', 'read'] as const;
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
  #hasWrittenEnd = false;

  constructor(isOpener: boolean) {
    this.ends = new StreamEnds({ onPending: () => {}, onIdFree: () => this.timesFree++ });
    this.ends.request(isOpener ? recordFlags.open : recordFlags.opened);
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
        this.ends.request(recordFlags.credit);
        return true;
      case 'write':
        return this.#write();
      default:
        return this.#read(other.records.shift());
    }
  }

  #write(): boolean {
    const flag = this.ends.pending & -this.ends.pending;
    if (flag === 0) return false;
    // Nothing is written of a free id, and no second end where both sides have one.
    if (this.timesFree > 0 || (flag >= recordFlags.shut && this.#hasWrittenEnd && !this.ends.mayReceive))
      this.isWrong = true;
    if (flag >= recordFlags.shut) this.#hasWrittenEnd = true;
    this.records.push(flag);
    this.ends.written(flag);
    return true;
  }

  #read(flag: number | undefined): boolean {
    if (flag === undefined) return false;
    if (this.timesFree > 0) {
      // What a link takes as a protocol error.
      if (flag !== recordFlags.credit && flag !== recordFlags.reset) this.isWrong = true;
    } else if (flag === recordFlags.shut) {
      if (!this.ends.mayReceive) this.isWrong = true;
      this.ends.shutThere();
    } else if (flag === recordFlags.reset) {
      this.ends.resetThere();
    }
    return true;
  }

  describe(): string {
    const { pending, isShutHere, isResetHere, isShutThere, isResetThere } = this.ends;
    const flags = [isShutHere, isResetHere, isShutThere, isResetThere].map(Number).join('');
    return `${pending} ${flags} ${this.timesFree} ${this.credits} [${this.records.join()}]`;
  }
}

/** Undefined when one of the steps is not possible. */
function replay(history: readonly Step[]): readonly [Side, Side] | undefined {
  const sides = [new Side(true), new Side(false)] as const;
  const isPossible = history.every(({ side, action }) => sides[side].do(action, sides[1 - side]));
  return isPossible ? sides : undefined;
}

function isQuiet(sides: readonly [Side, Side]): boolean {
  return sides.every(({ ends, records }) => ends.pending === 0 && records.length === 0);
}

function isBad(sides: readonly [Side, Side]): boolean {
  if (sides.some(({ isWrong, timesFree }) => isWrong || timesFree > 1)) return true;
  const isOver = sides.every(({ hasEnded }) => hasEnded) && isQuiet(sides);
  return isOver && sides.some(({ timesFree }) => timesFree !== 1);
}

test('however a stream ends, both sides free its id once, and write no record of it after', () => {
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

test('a connection that is refused frees its id on both sides', () => {
  const [dialer, acceptor] = [new Side(true), new Side(false)];
  acceptor.ends.pending = 0;
  dialer.do('write', acceptor);
  acceptor.do('read', dialer);
  acceptor.ends.refuseHere();
  acceptor.do('write', dialer);
  assert.deepEqual(acceptor.records.splice(0), [recordFlags.refused]);
  dialer.ends.resetThere();
  dialer.do('write', acceptor);
  acceptor.do('read', dialer);
  assert.deepEqual([dialer.timesFree, acceptor.timesFree], [1, 1]);
});

test('after the peer is gone, nothing is written and no id is freed', () => {
  const side = new Side(true);
  side.ends.abandon();
  side.ends.resetHere();
  side.ends.shutThere();
  assert.deepEqual([side.ends.pending, side.timesFree], [0, 0]);
});
