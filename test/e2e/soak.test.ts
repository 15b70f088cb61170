import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { describe, test } from 'node:test';
import { faultKinds } from '../../workbench/soak/plan.ts';
import { behaviours } from '../../workbench/soak/script.ts';
import type { SoakReport } from '../../workbench/soak/soak.ts';

const root = join(import.meta.dirname, '../..');
const pins = '/sys/fs/bpf/millrace';

function start(args: readonly string[]) {
  return spawn(join(root, 'millrace'), ['soak', ...args], { stdio: ['ignore', 'pipe', 'pipe'], detached: true });
}

/** What there is now of the kinds of things that a soak makes: labs, folders, and what is pinned for its hosts. */
function things(): readonly string[] {
  const shown = execFileSync(join(root, 'millrace'), ['lab', 'show', '--json'], { encoding: 'utf8' });
  return [
    ...JSON.parse(shown).labs.map(({ id }: { id: string }) => `lab ${id}`),
    ...readdirSync(tmpdir()).filter((name) => name.startsWith('millrace-soak-')),
    ...(existsSync(pins) ? readdirSync(pins) : []).filter((name) => /^[0-9a-f]{8}-[ab]$/.test(name)),
  ];
}

function left(before: readonly string[]): readonly string[] {
  return things().filter((thing) => !before.includes(thing));
}

describe('the soak', () => {
  test('a wrong option is one clear line', async () => {
    const child = start(['--seconds', 'long']);
    const [stderr, [code]] = await Promise.all([text(child.stderr), once(child, 'exit')]);
    assert.equal(code, 2);
    assert.match(stderr, /expected a whole number from 1 to 86400/);
  });

  test('thirty seconds of faults: every byte of 200 connections is right, and nothing is left', async () => {
    const before = things();
    const child = start(['--seconds', '30', '--seed', '1', '--json']);
    const [stdout, stderr, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'exit')]);
    assert.notEqual(stdout, '', stderr);
    const { phases } = JSON.parse(stdout) as SoakReport;
    assert.deepEqual(
      phases.flatMap(({ wire, failures }) => failures.map((failure) => `${wire}: ${failure}`)),
      [],
      stderr,
    );
    assert.equal(code, 0, stderr);
    assert.deepEqual(
      phases.map(({ wire }) => wire),
      ['shm', 'roce', 'tcp'],
    );
    const kinds = new Set(phases.flatMap(({ faults }) => faults.map(({ kind }) => kind)));
    assert.deepEqual(kinds, new Set([...faultKinds, 'packet loss']));
    for (const { wire, traffic } of phases) {
      for (const behaviour of behaviours) assert.ok(traffic[behaviour].exact > 0, `${behaviour} on ${wire}`);
    }
    assert.deepEqual(left(before), []);
  });

  test('Ctrl-C in the middle of a fault removes everything', async () => {
    const before = things();
    const child = start(['--wire', 'shm', '--connections', '20']);
    const exited = once(child, 'exit');
    for await (const line of createInterface(child.stderr)) {
      if (!/daemon|wire cut|QPs|etcd/.test(line)) continue;
      // As a terminal does it: to the whole foreground group.
      process.kill(-(child.pid ?? 0), 'SIGINT');
      break;
    }
    child.stderr.resume();
    assert.deepEqual(await exited, [130, null]);
    assert.deepEqual(left(before), []);
  });

  test('a reader that goes away ends it at the next line, and everything is removed', async () => {
    const before = things();
    const child = start(['--wire', 'shm', '--connections', '20']);
    const exited = once(child, 'exit');
    for await (const line of createInterface(child.stderr)) if (line.startsWith('wire')) break;
    child.stderr.destroy();
    assert.deepEqual(await exited, [130, null]);
    assert.deepEqual(left(before), []);
  });
});
