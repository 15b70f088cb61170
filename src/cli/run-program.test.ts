import assert from 'node:assert/strict';
import { test } from 'node:test';
import { runCaptured } from './fixtures/captured-world.ts';

test('run without a program, or with an option it does not have, is a usage error', async () => {
  for (const [words, message] of [
    [[], /missing required argument 'program'/],
    [['--'], /missing required argument 'program'|there is no program/],
    [['--', ''], /run: there is no program; give it after --/],
    [['--instanc', 'x', '--', 'true'], /unknown option '--instanc'[\s\S]*Did you mean --instance\?/],
  ] as const) {
    const { code, stdout, stderr } = await runCaptured(['run', ...words]);
    assert.equal(code, 2, stderr);
    assert.match(stderr, message);
    assert.equal(stdout, '');
  }
});
