import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { inheritedFds, startedWith, wordsAsGiven } from './process-start.ts';

const limits = (soft: string, hard: string): string =>
  `Limit  Soft Limit  Hard Limit  Units\nMax open files            ${soft}                 ${hard}               files\n`;

describe('what a process was started with', () => {
  test('nonsense in MILLRACE_START counts as nothing', () => {
    for (const text of ['', '1024', '1024 x', '-1 0', '1024 0 0']) {
      const started = startedWith({ MILLRACE_START: text }, () => '');
      assert.deepEqual(started, { ignoredSignals: [], openFiles: Number.MAX_SAFE_INTEGER }, text);
    }
  });

  test('MILLRACE_START has the limit and the ignored signals', () => {
    const { openFiles, ignoredSignals } = startedWith({
      MILLRACE_START: '1024 8000000000000001',
    });
    assert.deepEqual(
      { openFiles, ignoredSignals },
      {
        openFiles: 1024,
        ignoredSignals: [1, 64],
      },
    );
    assert.equal(startedWith({ MILLRACE_START: 'unlimited 0' }).openFiles, Number.MAX_SAFE_INTEGER);
  });

  test('without it the limit is the parent’s, if the hard limits are the same', () => {
    const of = (own: string, parent: string): number =>
      startedWith({}, (who) => (who === 'self' ? own : parent)).openFiles;
    assert.equal(of(limits('4096', '4096'), limits('1024', '4096')), 1024);
    assert.equal(of(limits('4096', '4096'), limits('1024', '8192')), 4096);
    assert.equal(of(limits('4096', '4096'), ''), 4096);
  });

  test('descriptors of Node are not among the inherited ones', () => {
    assert.ok(inheritedFds().every((fd) => fd > 2));
  });

  test('arguments are found as bytes, and taken from their text when they do not match', () => {
    const line = Buffer.from('node\0bin.ts\0run\0cat\0\xff\0\0', 'latin1');
    assert.deepEqual(
      wordsAsGiven(['cat', '\ufffd', ''], line).map((word) => Buffer.from(word).toString('latin1')),
      ['cat', '\xff', ''],
    );
    assert.deepEqual(
      wordsAsGiven(['other'], line).map((word) => Buffer.from(word).toString()),
      ['other'],
    );
  });
});
