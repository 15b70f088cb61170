import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { didYouMean, editDistance } from './suggest.ts';

test('nothing is offered where nothing is known', () => {
  assert.equal(didYouMean('demo', []), '');
});

test('a short word is not taken for every other short word', () => {
  assert.equal(didYouMean('x', ['a', 'b']), ' (there is a, b)');
});

test('the nearest word is offered', () => {
  assert.equal(didYouMean('dmeo1', ['demo2', 'demo', 'other']), ' (there is demo2, demo, other)');
  assert.equal(didYouMean('dem', ['demos', 'demo']), ' (did you mean demo?)');
});

test('a long list is cut', () => {
  assert.match(
    didYouMean(
      'something',
      Array.from({ length: 20 }, (_, index) => `h${index}`),
    ),
    /h7, …\)$/,
  );
});

test('the edit distance is a distance', () => {
  const word = fc.string({ maxLength: 8 });
  fc.assert(
    fc.property(word, word, word, (a, b, c) => {
      assert.equal(editDistance(a, b), editDistance(b, a));
      assert.equal(editDistance(a, b) === 0, a === b);
      assert.ok(editDistance(a, c) <= editDistance(a, b) + editDistance(b, c));
    }),
  );
});
