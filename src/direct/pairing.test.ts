// Tests of finding the two ends of a connection by their sequence numbers.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { type Identity, WaitingOffers } from './pairing.ts';

interface Offer {
  readonly identity: Identity;
  readonly name: string;
}

const word = fc.integer({ min: 0, max: 0xffff_ffff });
const wrap = (value: number): number => value >>> 0;
const offer = (iss: number, irs: number, name = ''): Offer => ({ identity: { iss: wrap(iss), irs: wrap(irs) }, name });
const connected = (x: number, y: number): Offer => offer(x, y + 1, 'connected');
const accepted = (x: number, y: number): Offer => offer(y + 1, x + 1, 'accepted');

test('the two ends of a connection are found, whichever is offered first, at any sequence numbers', () => {
  fc.assert(
    fc.property(word, word, fc.boolean(), (x, y, isFirst) => {
      const waiting = new WaitingOffers<Offer>();
      const ends = [connected(x, y), accepted(x, y)];
      const [first, second] = isFirst ? ends : ends.toReversed();
      assert.equal(waiting.add(first ?? assert.fail()), 'waiting');
      assert.equal(waiting.add(second ?? assert.fail()), first);
      assert.equal(waiting.count, 0);
    }),
  );
});

test('two ends that connected at the same time are found', () => {
  const waiting = new WaitingOffers<Offer>();
  const [left, right] = [connected(0xffff_ffff, 7), connected(7, 0xffff_ffff)];
  assert.equal(waiting.add(left), 'waiting');
  assert.equal(waiting.add(right), left);
});

test('ends of other connections are not taken for it, however near their numbers are', () => {
  const [x, y] = [1000, 2000];
  for (const [iss, irs] of [
    [y + 1, x],
    [y + 2, x + 1],
    [y + 1, x + 2],
    [y, x + 2],
    [y - 1, x + 1],
    [y - 1, x],
  ] as const) {
    const waiting = new WaitingOffers<Offer>();
    waiting.add(connected(x, y));
    assert.equal(waiting.add(offer(iss, irs)), 'waiting', `${iss} ${irs}`);
  }
});

test('an end that is offered twice waits once, and one that was removed does not wait', () => {
  const waiting = new WaitingOffers<Offer>();
  const [first, again] = [connected(1, 2), connected(1, 2)];
  assert.equal(waiting.add(first), 'waiting');
  assert.equal(waiting.add(again), 'twice');
  assert.equal(waiting.remove(again), false);
  assert.equal(waiting.remove(first), true);
  assert.equal(waiting.remove(first), false);
  assert.equal(waiting.add(accepted(1, 2)), 'waiting');
});
