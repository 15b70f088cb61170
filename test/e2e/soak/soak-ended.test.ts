// Tests that whatever ends a soak, everything is removed.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { describe, test } from 'node:test';
import { Place } from './place.ts';

describe('a soak that is ended', { concurrency: true }, () => {
  test('Ctrl-C in the middle of a fault removes everything', async () => {
    using place = new Place();
    const child = place.start(['--wire', 'shm', '--connections', '20']);
    const exited = once(child, 'exit');
    for await (const line of createInterface(child.stderr)) {
      if (!/daemon|wire cut|QPs|etcd/.test(line)) continue;
      // As a terminal does it: to the whole foreground group.
      process.kill(-(child.pid ?? 0), 'SIGINT');
      break;
    }
    child.stderr.resume();
    assert.deepEqual(await exited, [130, null]);
    assert.deepEqual(place.left(), []);
  });

  test('a reader that goes away ends it at the next line, and everything is removed', async () => {
    using place = new Place();
    const child = place.start(['--wire', 'shm', '--connections', '20']);
    const exited = once(child, 'exit');
    for await (const line of createInterface(child.stderr)) if (line.startsWith('wire')) break;
    child.stderr.destroy();
    assert.deepEqual(await exited, [130, null]);
    assert.deepEqual(place.left(), []);
  });
});
