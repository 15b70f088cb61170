import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { printable } from './printable.ts';

describe('printable', () => {
  test('leaves nothing that moves a cursor or breaks a line', () => {
    assert.equal(printable('a\u001b[2Jb'), 'ab');
    assert.equal(printable('a\r\nb\u0000\u007f\u0085'), 'a\\x0d\\x0ab\\x00\\x7f\\x85');
  });

  test('leaves everything else as it is', () => {
    assert.equal(printable('Größe "ü" – 漢字 🙂'), 'Größe "ü" – 漢字 🙂');
  });
});
