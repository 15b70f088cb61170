// What a peer is told of direct connections: in few lines, whatever programs do.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MAX_LINES_PER_SECOND } from '../../json-lines/line-budget.ts';
import type { DirectWord, PeerMessage } from './control-protocol.ts';
import { DirectTeller, wordsOf } from './direct-teller.ts';

const keyOf = (index: number): string => index.toString(16).padStart(32, '0');
const waits = (index: number): DirectWord => ({ kind: 'directWaits', key: keyOf(index) });
const found = (index: number): DirectWord => ({
  kind: 'directFound',
  key: keyOf(index),
  proof: keyOf(index),
  link: index % 64,
});
const gone = (index: number): DirectWord => ({ kind: 'directGone', key: keyOf(index) });

type Told = Parameters<typeof wordsOf>[0] & PeerMessage;

/** A teller whose clock is the test's. */
class ToldByClock {
  readonly told: Told[] = [];
  readonly teller = new DirectTeller(
    (message) => void this.told.push(message),
    (run, ms) => {
      this.#due.push({ run, atMs: this.#nowMs + ms });
    },
  );
  #due: { readonly run: () => void; readonly atMs: number }[] = [];
  #nowMs = 0;

  get words(): readonly DirectWord[] {
    return this.told.flatMap(wordsOf);
  }

  tick(ms: number): void {
    for (const endMs = this.#nowMs + ms; this.#nowMs <= endMs; this.#nowMs++) {
      const due = this.#due.filter(({ atMs }) => atMs <= this.#nowMs);
      this.#due = this.#due.filter(({ atMs }) => atMs > this.#nowMs);
      for (const { run } of due) run();
    }
    this.#nowMs--;
  }
}

const order = (left: DirectWord, right: DirectWord): number =>
  left.kind < right.kind ? -1 : Number(left.kind > right.kind);

test('what is told in one turn goes in one line of each kind, and is read as it was told', () => {
  const clock = new ToldByClock();
  const words = [1, 2, 3].flatMap((index) => [gone(index), found(index), waits(index)]);
  for (const word of words) clock.teller.tell(word);
  assert.deepEqual(clock.told, []);
  clock.tick(0);
  assert.equal(clock.told.length, 3);
  assert.deepEqual(clock.words.toSorted(order), words.toSorted(order));
});

test('however many there are, lines are fewer than a peer takes, and the newest are told', () => {
  const clock = new ToldByClock();
  for (let index = 0; index < 5000; index++) for (const word of [waits, found, gone]) clock.teller.tell(word(index));
  clock.tick(1000);
  assert.ok(clock.told.length <= MAX_LINES_PER_SECOND, `${clock.told.length} lines`);
  assert.deepEqual(
    clock.words.flatMap(({ kind, key }) => (kind === 'directWaits' ? [key] : [])),
    Array.from({ length: 4096 }, (_, index) => keyOf(904 + index)),
  );
  // Once all is told, the next word does not wait.
  const before = clock.told.length;
  clock.teller.tell(waits(1));
  clock.tick(0);
  assert.equal(clock.told.length, before + 1);
});

test('words that come one by one keep to the pace', () => {
  const clock = new ToldByClock();
  for (let ms = 0; ms < 1000; ms++) {
    clock.teller.tell(waits(ms));
    clock.tick(1);
  }
  assert.ok(clock.told.length <= 1 + 1000 / 5, `${clock.told.length} lines`);
  clock.tick(5);
  assert.equal(clock.words.length, 1000);
});

test('what was not told when it is closed is not told', () => {
  const clock = new ToldByClock();
  clock.teller.tell(waits(1));
  clock.teller.close();
  clock.tick(10);
  assert.deepEqual(clock.told, []);
});
