// Words of calls: what was written is read again, and nothing beyond it.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { MillraceError, SystemError, UnsupportedError, UsageError } from '../../errors.ts';
import type { QpAttributes } from '../../verbs/index.ts';
import { readError, writeError } from './call-errors.ts';
import { MAX_CALL_WORDS } from './call-protocol.ts';
import { readQpAttributes, stateOf, typeOf, writeQpAttributes } from './qp-words.ts';
import { WordReader, WordWriter } from './words.ts';

const protocol = { code: 'MILLRACE_ERR_PROTOCOL' };
const usage = { code: 'MILLRACE_ERR_USAGE' };

/** Through shared words, as between two processes. */
function passed(fill: (writer: WordWriter) => unknown): WordReader {
  const writer = new WordWriter();
  fill(writer);
  const words = new Uint32Array(MAX_CALL_WORDS + 7);
  writer.copyTo(words, 7);
  return new WordReader().copyFrom(words, 7, writer.count);
}

describe('words of a call', () => {
  test('words that are missing, too many, or out of range are a protocol error', () => {
    assert.throws(() => passed(() => {}).u32(), protocol);
    assert.throws(() => passed((writer) => writer.u32(1)).u64(), protocol);
    assert.throws(() => passed((writer) => writer.u32(5).u32(0)).text(), protocol);
    assert.throws(() => passed((writer) => writer.u32(0xffff_ffff)).text(), protocol);
    assert.throws(() => passed((writer) => writer.u32(0).u32(0xffff_ffff)).u64(), protocol);
    assert.throws(() => new WordReader().copyFrom(new Uint32Array(1), 0, MAX_CALL_WORDS + 1), protocol);
    assert.throws(() => stateOf(7), usage);
    assert.throws(() => typeOf(2), usage);
  });

  test('any numbers and text come back as they were', () => {
    const part = fc.oneof(
      fc.nat(0xffff_ffff).map((value) => ['u32', value] as const),
      fc.maxSafeNat().map((value) => ['u64', value] as const),
      fc.string({ unit: 'grapheme', maxLength: 40 }).map((value) => ['text', value] as const),
      fc.option(fc.nat(0xffff), { nil: undefined }).map((value) => ['optional', value] as const),
    );
    fc.assert(
      fc.property(fc.array(part, { maxLength: 50 }), (parts) => {
        const reader = passed((writer) => {
          for (const [kind, value] of parts) writer[kind](value as never);
        });
        for (const [kind, value] of parts) assert.equal(reader[kind](), value);
        assert.throws(() => reader.u32(), protocol);
      }),
    );
  });

  test('any attributes of a step come back as they were', () => {
    const number = (max: number) => fc.nat(max);
    const attributes = fc.record(
      {
        portNumber: number(255),
        access: number(15),
        qkey: number(0xffff_ffff),
        sqPsn: number(0xff_ffff),
        rnrRetry: number(7),
        path: fc.record(
          { gid: fc.constant('fe80::1'), lid: number(0xffff), gidIndex: number(255) },
          { requiredKeys: ['gid'] },
        ),
      },
      { requiredKeys: [] },
    );
    fc.assert(
      fc.property(attributes, (given) => {
        const read = readQpAttributes(passed((writer) => writeQpAttributes(writer, given as QpAttributes)));
        assert.deepEqual({ ...read, path: { ...read.path } }, { ...given, path: { ...given.path } });
      }),
    );
  });
});

describe('errors that cross', () => {
  test('have the class, the code and the words that they had', () => {
    const thrown = [
      new SystemError(-12, 'mmap', '4096 bytes'),
      new UsageError('no such thing'),
      new UnsupportedError('not here'),
      new MillraceError('MILLRACE_ERR_QUOTA', 'too many'),
    ];
    for (const error of thrown) {
      const got = readError(passed((writer) => writeError(writer, error)));
      assert.equal(got.constructor, error.constructor);
      const { code, message } = got as MillraceError;
      assert.deepEqual([code, message], [error.code, error.message]);
    }
    const system = readError(passed((writer) => writeError(writer, thrown[0]))) as SystemError;
    assert.deepEqual([system.errno, system.syscall], [-12, 'mmap']);
  });

  test('of an unknown class are called a failure of the backend', () => {
    const got = readError(passed((writer) => writeError(writer, new TypeError('oops')))) as MillraceError;
    assert.deepEqual([got.code, got.message], ['MILLRACE_ERR_FAILED', 'the backend failed: TypeError: oops']);
  });
});
