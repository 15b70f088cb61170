import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { describe, test } from 'node:test';

const root = join(import.meta.dirname, '../..');

function start(
  args: readonly string[],
): ChildProcess & { stdout: NodeJS.ReadableStream; stderr: NodeJS.ReadableStream } {
  return spawn(join(root, 'millrace'), ['demo', ...args], { stdio: ['ignore', 'pipe', 'pipe'], detached: true });
}

function labIds(): string[] {
  const shown = execFileSync(join(root, 'millrace'), ['lab', 'show', '--json'], { encoding: 'utf8' });
  return JSON.parse(shown).labs.map(({ id }: { id: string }) => id);
}

describe('the demo', () => {
  test('redis-benchmark on one host reaches redis-server on the other, and the figures are printed', async () => {
    const before = labIds();
    const child = start(['--requests', '2000', '--clients', '10', '--json']);
    const [stdout, stderr, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'exit')]);
    assert.equal(code, 0, stderr);
    const document = JSON.parse(stdout);
    assert.deepEqual(
      document.figures.map(({ test }: { test: string }) => test),
      ['SET', 'GET'],
    );
    for (const { requestsPerSecond, p50Ms } of document.figures) assert.ok(requestsPerSecond > 100 && p50Ms > 0);
    assert.match(stderr, /client +10\.77\.0\.1 +fd77::1/);
    assert.deepEqual(labIds(), before);
  });

  test('Ctrl-C in the middle removes everything', async () => {
    const before = labIds();
    const child = start(['--requests', '100000000']);
    const exited = once(child, 'exit');
    for await (const line of createInterface(child.stderr)) {
      if (!line.startsWith('redis-benchmark on')) continue;
      // As a terminal does it: to the whole foreground group.
      process.kill(-(child.pid ?? 0), 'SIGINT');
      break;
    }
    child.stderr.resume();
    const [code] = await exited;
    assert.equal(code, 130);
    assert.deepEqual(labIds(), before);
  });

  test('a wrong option is one clear line', async () => {
    const child = start(['--requests', 'many']);
    const [stderr, [code]] = await Promise.all([text(child.stderr), once(child, 'exit')]);
    assert.equal(code, 2);
    assert.match(stderr, /expected a positive whole number/);
  });
});
