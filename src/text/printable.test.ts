import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { anyText } from './fixtures/any-text.ts';
import { printable } from './printable.ts';

describe('printable', () => {
  test('leaves nothing that moves a cursor, breaks a line or turns the direction of writing', () => {
    assert.equal(printable('a\u001b[2Jb'), 'ab');
    assert.equal(printable('a\r\nb\u0000\u007f\u0085'), 'a\\x0d\\x0ab\\x00\\x7f\\x85');
    assert.equal(printable('a\u202eb\u2028c\ud800'), 'a\\u{202e}b\\u{2028}c\\u{d800}');
  });

  test('leaves everything else as it is', () => {
    assert.equal(printable('Größe "ü" – 漢字 🙂'), 'Größe "ü" – 漢字 🙂');
  });

  test('cuts what is too long, but no character in two', () => {
    assert.equal(printable('abcdef', 4), 'abcd');
    assert.equal(printable('abc🙂', 4), 'abc');
  });

  test('printable text stays as it is when it is made printable again', () => {
    fc.assert(
      fc.property(anyText(), fc.nat(40), (text, max) => {
        const once = printable(text, max);
        assert.ok(once.length <= max && once.isWellFormed());
        assert.equal(printable(once, max), once);
      }),
    );
  });
});
