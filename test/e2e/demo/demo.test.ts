import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { after, describe, test } from 'node:test';

const root = join(import.meta.dirname, '../../..');
/** Labs of other tests are none of ours. */
const runDir = mkdtempSync(join(tmpdir(), 'millrace-demo-test-'));
const env = { ...process.env, MILLRACE_RUN_DIR: runDir };
after(() => rmSync(runDir, { recursive: true, force: true }));

function start(args: readonly string[]): ChildProcess & { stdout: Readable; stderr: Readable } {
  return spawn(join(root, 'millrace'), ['demo', ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
    env,
  });
}

function labIds(): string[] {
  const shown = execFileSync(join(root, 'millrace'), ['lab', 'show', '--json'], { encoding: 'utf8', env });
  return JSON.parse(shown).labs.map(({ id }: { id: string }) => id);
}

describe('the demo', () => {
  test('programs between two hosts are measured by plain TCP, carried and direct, with the bytes right', async () => {
    for (const wire of ['shm', 'roce', 'tcp']) {
      const before = labIds();
      const child = start(['--wire', wire, '--requests', '2000', '--clients', '10', '--transfer-mib', '16', '--json']);
      const [stdout, stderr, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'exit')]);
      assert.equal(code, 0, stderr);
      const { plain, carried, direct, verdicts, counters, peers, promoted } = JSON.parse(stdout);
      for (const { redis, transfer } of [plain, carried, direct]) {
        assert.deepEqual(
          redis.map(({ test }: { test: string }) => test),
          ['SET', 'GET'],
        );
        for (const { requestsPerSecond, p50Ms } of redis) assert.ok(requestsPerSecond > 100 && p50Ms > 0);
        assert.equal(transfer.sizeBytes, 16 * 1024 * 1024);
      }
      for (const { transfer } of [carried, direct]) assert.equal(transfer.sha256, plain.transfer.sha256);
      // Twice ten connections of redis-benchmark, one that asks for the configuration, and three
      // transfers.
      assert.ok(verdicts.carried >= 23, `${verdicts.carried} were carried`);
      // Of ten connections of each test, and three transfers: on a busy machine most of them have
      // ended before their turn comes.
      assert.ok(promoted.promoted > 0, 'some became direct');
      assert.ok(counters.bytesIn > 3 * 16 * 1024 * 1024);
      assert.equal(peers[0].links[0].wire, wire);
      assert.match(stderr, /client +10\.77\.0\.1 +fd77::1/);
      assert.deepEqual(labIds(), before);
    }
  });

  test('stays up after the figures, for programs of your own, until Ctrl-C removes everything', async () => {
    const before = labIds();
    const child = start(['--requests', '2000', '--clients', '10', '--transfer-mib', '16']);
    const exited = once(child, 'exit');
    const said: string[] = [];
    for await (const line of createInterface(child.stderr)) {
      said.push(line);
      const lab = /lab exec --lab (\w+)/.exec(line)?.[1];
      if (lab === undefined) continue;
      const args = ['lab', 'exec', '--lab', lab, 'client', '--', 'redis-cli', '-h', '10.77.0.2', 'ping'];
      assert.equal(execFileSync(join(root, 'millrace'), args, { encoding: 'utf8', env }).trim(), 'PONG');
      // As a terminal does it: to the whole foreground group.
      process.kill(-(child.pid ?? 0), 'SIGINT');
      break;
    }
    child.stderr.resume();
    const [code] = await exited;
    assert.equal(code, 130, said.join('\n'));
    assert.deepEqual(labIds(), before);
  });

  test('Ctrl-C in the middle removes everything', async () => {
    const before = labIds();
    const child = start(['--requests', '100000000']);
    const exited = once(child, 'exit');
    for await (const line of createInterface(child.stderr)) {
      if (!line.startsWith('Plain TCP')) continue;
      process.kill(-(child.pid ?? 0), 'SIGINT');
      break;
    }
    child.stderr.resume();
    const [code] = await exited;
    assert.equal(code, 130);
    assert.deepEqual(labIds(), before);
  });

  test('a reader that goes away in the middle ends it, and everything is removed', async () => {
    const before = labIds();
    const child = start(['--requests', '2000', '--clients', '10', '--transfer-mib', '16']);
    const exited = once(child, 'exit');
    for await (const line of createInterface(child.stderr)) if (line.startsWith('Two hosts')) break;
    child.stderr.destroy();
    child.stdout.resume();
    assert.deepEqual(await exited, [130, null]);
    assert.deepEqual(labIds(), before);
  });

  test('a wrong option is one clear line', async () => {
    const child = start(['--requests', 'many']);
    const [stderr, [code]] = await Promise.all([text(child.stderr), once(child, 'exit')]);
    assert.equal(code, 2);
    assert.match(stderr, /Give a positive whole number/);
  });
});
