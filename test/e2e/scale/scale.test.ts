// Tests of `millrace scale` in short: 50 played peers, 4 hosts with daemons, 500 connections.
// Runs alone: its daemons must not be taken for dead because something else has the processors.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { promisify } from 'node:util';

const millrace = join(import.meta.dirname, '../../../millrace');
const run = promisify(execFile);
const skip = process.getuid?.() !== 0 ? 'needs root' : false;

describe('scale', { skip }, () => {
  test('a wrong option is one clear line', async () => {
    await assert.rejects(run(millrace, ['scale', '--hosts', 'many']), {
      code: 2,
      stderr: /expected a whole number from 0 to 199/,
    });
  });

  test('news reach all of 50 played peers, 4 hosts carry to each other again after kills, and 500 connections are open', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'scale-test-'));
    const env = { ...process.env, MILLRACE_RUN_DIR: join(folder, 'run'), TMPDIR: folder };
    const short = ['--idle-seconds', '1', '--times', '2', '--json'];
    const sizes = ['--peers', '50', '--endpoints', '20', '--hosts', '4', '--connections', '500'];
    const { stdout, stderr } = await run(millrace, ['scale', ...sizes, ...short], { env });
    assert.match(stderr, /50 peers connect, and announce 20 endpoints each/);
    const { v, isOk, peers, mesh, connections } = JSON.parse(stdout);
    assert.deepEqual([v, isOk], [1, true]);
    assert.equal(peers.lastKnownMs.length, 2);
    assert.equal(peers.realAnnouncedMs.length, 2);
    assert.ok(peers.lastKnownMs.every((ms: number) => ms > 0));
    // Each has a connection.
    assert.ok(peers.idle.descriptors >= peers.alone.descriptors + 50);
    assert.ok(peers.listensPerSecond > 0);
    assert.deepEqual(mesh.problems, []);
    assert.deepEqual(
      mesh.talks.map(({ carried }: { readonly carried: number }) => carried),
      [12, 12],
    );
    assert.equal(mesh.killed, 2);
    const { open, carried, answered, bound } = connections;
    assert.deepEqual([open, answered, bound], [500, 500, '']);
    assert.ok(carried > open / 2, `${carried} are carried`);
    assert.deepEqual(
      readdirSync(folder).filter((name) => name.startsWith('millrace-')),
      [],
    );
    rmSync(folder, { recursive: true });
  });
});
