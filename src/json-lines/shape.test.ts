import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ProtocolError, UsageError } from '../errors.ts';
import {
  boolean,
  converted,
  hex,
  integer,
  jsonObject,
  list,
  map,
  object,
  oneOf,
  only,
  optional,
  printableText,
  type Shape,
  text,
} from './shape.ts';

/** A shape, what it takes at its limits, and what is just outside of them. */
const limits: readonly (readonly [
  what: string,
  shape: Shape<unknown>,
  inside: readonly unknown[],
  outside: readonly unknown[],
])[] = [
  ['an integer', integer(1, 9), [1, 9], [0, 10, 1.5, '1', null, undefined, Number.NaN]],
  ['a boolean', boolean(), [true, false], [0, 'true', null, undefined]],
  ['a text', text(/^[a-z]{1,3}$/, 'one to three letters'), ['a', 'abc'], ['', 'abcd', 'A', 1, undefined]],
  ['hexadecimal digits', hex(4), ['00ff'], ['00f', '00fff', '00FF', 15]],
  ['a text for people', printableText(), ['', 'why'], [1, null, undefined, ['why']]],
  ['one of some values', oneOf('a', 'b'), ['a', 'b'], ['c', '', undefined]],
  ['an optional value', optional(integer(1, 9)), [undefined, 1], [null, 0, 10]],
  ['a list', list(integer(1, 9), 1, 2), [[1], [1, 9]], [[], [1, 1, 1], [0], [10], {}, 1]],
  ['an object', object({ a: integer(1, 9) }), [{ a: 1 }], [{}, { a: 0 }, { a: 10 }, { a: 1, b: 1 }, [1], null]],
  ['a map', map(integer(1, 9), 1, 2), [{ ab: 1 }], [{ abc: 1 }, { a: 1, b: 1 }, { a: 10 }, []]],
  ['any object', jsonObject(20, 2), [{ a: { b: 1 } }], [{ a: { b: {} } }, { a: 'x'.repeat(20) }, []]],
  ['a narrowed value', only(integer(1, 9), (value) => value !== 5, 'anything but 5'), [4], [5, 0, 10]],
];

describe('what a peer sends is taken only within its limits', () => {
  for (const [what, shape, inside, outside] of limits) {
    test(what, () => {
      for (const value of inside) assert.deepEqual({ ...Object(shape.decode(value, 'x')) }, { ...Object(value) });
      for (const value of outside) assert.throws(() => shape.decode(value, 'x'), ProtocolError, JSON.stringify(value));
    });
  }

  test('a converted value says what its parser says, and passes on errors that are none of the peer', () => {
    const parse = (value: number): number => {
      if (value === 1) throw new UsageError('not one');
      if (value === 2) throw new TypeError('a bug');
      return -value;
    };
    const shape = converted(integer(0, 9), parse, (value) => -value);
    assert.equal(shape.decode(3, 'x'), -3);
    assert.equal(shape.encode(-3), 3);
    assert.throws(() => shape.decode(1, 'x'), /^ProtocolError: x: not one|x: not one/);
    assert.throws(() => shape.decode(2, 'x'), TypeError);
    assert.throws(() => shape.decode(10, 'x'), ProtocolError);
  });
});
