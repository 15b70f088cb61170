import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Identifications } from './identification.ts';

const many = (count: number, identification: number): number[] => Array.from({ length: count }, () => identification);

/** What becomes of packets with these identifications. */
function fates(identifications: readonly number[]): boolean[] {
  const peer = new Identifications();
  return identifications.map((one) => peer.accepts(one));
}

describe('identifications of a peer', () => {
  test('any are accepted of a peer that is not known yet', () => {
    assert.deepEqual(
      fates([0xffff, 0, 64, 63, 1234]),
      many(5, 0).map(() => true),
    );
  });

  test('a peer that always sent small ones is held to it', () => {
    assert.deepEqual(fates([...many(8, 3), 64, 5, 0xffff]).slice(8), [false, true, false]);
    assert.deepEqual(fates([...many(7, 3), 64]).at(-1), true);
  });

  test('small ones count only in a row', () => {
    assert.deepEqual(fates([...many(7, 3), 700, ...many(7, 3), 700]).at(-1), true);
    assert.deepEqual(fates([...many(7, 3), 700, ...many(8, 3), 700]).at(-1), false);
  });

  test('three large ones in a row make all accepted again, and two do not', () => {
    assert.deepEqual(fates([...many(8, 0), 900, 901, 902, 903]).slice(8), [false, false, true, true]);
    assert.deepEqual(fates([...many(8, 0), 900, 901, 0, 902, 903, 0, 904]).slice(8), [
      false,
      false,
      true,
      false,
      false,
      true,
      false,
    ]);
  });

  test('a peer that sent large ones can be held to small ones again', () => {
    const history = [...many(8, 0), 900, 901, 902, ...many(8, 1), 900];
    assert.equal(fates(history).at(-1), false);
  });
});
