import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { test } from 'node:test';
import { Progress } from './progress.ts';
import type { OutputStream } from './world.ts';

const MIB = 1024 * 1024;

/** A terminal, and what was drawn on it last. */
function terminal(columns: number): { output: PassThrough & OutputStream; drawn: () => string } {
  const output = Object.assign(new PassThrough(), { isTTY: true, columns });
  return {
    output,
    drawn: () =>
      String(output.read() ?? '')
        .split('\r\u001b[K')
        .at(-1) ?? '',
  };
}

test('nothing is drawn elsewhere than on a terminal, or quietly', () => {
  for (const [isTTY, isQuiet] of [
    [false, false],
    [true, true],
  ] as const) {
    const output = Object.assign(new PassThrough(), { isTTY });
    using progress = new Progress({ output, nowMs: () => 0, isQuiet });
    progress.update('sending', 1, 2);
    progress.clear();
    assert.equal(output.read(), null);
  }
});

test('a bar with rate and time left, drawn seldom, never longer than the line, and taken away at the end', () => {
  const { output, drawn } = terminal(0);
  let ms = 0;
  const progress = new Progress({ output, nowMs: () => ms, isQuiet: false });
  progress.update('sending', 0, 100 * MIB);
  assert.equal(drawn(), 'sending [........................] 0%  0 of 100 MiB');
  ms = 100;
  progress.update('sending', 5 * MIB, 100 * MIB);
  assert.equal(drawn(), '');
  ms = 1000;
  progress.update('sending', 25 * MIB, 100 * MIB);
  assert.equal(drawn(), 'sending [######..................] 25%  25 MiB of 100 MiB  25 MiB/s  3s left');
  // Another attempt begins before where this one was.
  ms = 2000;
  progress.update('sending', 10 * MIB, 100 * MIB);
  assert.equal(drawn(), 'sending [##......................] 10%  10 MiB of 100 MiB');
  ms = 3000;
  progress.update('sending', 12 * MIB, undefined);
  assert.equal(drawn(), 'sending  12 MiB  2.0 MiB/s');
  progress[Symbol.dispose]();
  assert.equal(String(output.read()), '\r\u001b[K');
  const narrow = terminal(20);
  new Progress({ output: narrow.output, nowMs: () => 0, isQuiet: false }).update('sending', 0, 100 * MIB);
  assert.equal(narrow.drawn().length, 19);
});
