// Tests of what two daemons know a connection by.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { type Candidate, candidatesOf, isProof, proofOf } from './candidates.ts';
import { accepted, connected } from './fixtures/ends.ts';
import type { Identity } from './pairing.ts';

const ringBytes = 65_536;
const word = fc.integer({ min: 0, max: 0xffff_ffff });

function common(one: Identity, other: Identity, otherRingBytes = ringBytes): readonly [Candidate, Candidate][] {
  const others = candidatesOf(other, otherRingBytes);
  return candidatesOf(one, ringBytes).flatMap((candidate) => {
    const same = others.find(({ key }) => key === candidate.key);
    return same === undefined ? [] : [[candidate, same] as [Candidate, Candidate]];
  });
}

test('the two ends of a connection have a candidate in common, at any sequence numbers', () => {
  fc.assert(
    fc.property(word, word, (x, y) => {
      for (const other of [accepted(x, y), connected(y, x)]) {
        const found = common(connected(x, y), other);
        // Both, if both connected at the same time and with the same number.
        assert.equal(found.length, x === y && other.iss === x ? 2 : 1);
        const [one, another] = found[0] ?? assert.fail();
        assert.deepEqual({ ...one, hasConnected: 0 }, { ...another, hasConnected: 0 });
        if (x !== y) assert.deepEqual([one.hasConnected, another.hasConnected], [true, other.iss === y]);
        assert.match(one.key, /^[0-9a-f]{32}$/);
      }
    }),
  );
});

test('ends of other connections, and rings of other sizes, have none in common', () => {
  const [x, y] = [1000, 2000];
  for (const [left, right] of [
    [x + 1, y],
    [x, y + 1],
    [x + 2, y + 2],
  ] as const) {
    assert.deepEqual(common(connected(x, y), accepted(left, right)), []);
  }
  assert.deepEqual(common(connected(x, y), accepted(x, y), 2 * ringBytes), []);
});

test('a proof is good from one daemon to one other', () => {
  const [candidate = assert.fail(), other = assert.fail()] = candidatesOf({ iss: 1, irs: 2 }, ringBytes);
  const proof = proofOf(candidate, 'a', 'b');
  assert.match(proof, /^[0-9a-f]{32}$/);
  assert.equal(isProof(proof, candidate, 'a', 'b'), true);
  for (const [from, to] of [
    ['b', 'a'],
    ['a', 'c'],
    ['c', 'b'],
  ] as const) {
    assert.equal(isProof(proof, candidate, from, to), false);
  }
  assert.equal(isProof(proof, other, 'a', 'b'), false);
  assert.equal(isProof('', candidate, 'a', 'b'), false);
});
