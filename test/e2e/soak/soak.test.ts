// Tests of the soak: it finds nothing wrong, and whatever ends it removes everything.
// Runs alone: its daemons must not be taken for dead because something else has the processors.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { describe, test } from 'node:test';
import { faultKinds } from '../../../workbench/soak/plan.ts';
import { behaviours } from '../../../workbench/soak/script.ts';
import type { SoakReport } from '../../../workbench/soak/soak.ts';

const root = join(import.meta.dirname, '../../..');
const pins = '/sys/fs/bpf/millrace';

/**
 * A place for labs and folders of one soak, so that what it leaves can be told from what others
 * have.
 */
class Place implements Disposable {
  readonly #folder = mkdtempSync(join(tmpdir(), 'soak-test-'));
  readonly #pinned = pinned();

  get env(): NodeJS.ProcessEnv {
    return { ...process.env, MILLRACE_RUN_DIR: join(this.#folder, 'run'), TMPDIR: this.#folder };
  }

  start(args: readonly string[]) {
    return spawn(join(root, 'millrace'), ['soak', ...args], {
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true,
      env: this.env,
    });
  }

  /** Labs, folders, and what is pinned for hosts of no lab that there is. */
  left(): readonly string[] {
    const shown = execFileSync(join(root, 'millrace'), ['lab', 'show', '--json'], { encoding: 'utf8', env: this.env });
    return [
      ...JSON.parse(shown).labs.map(({ id }: { id: string }) => `lab ${id}`),
      ...readdirSync(this.#folder).filter((name) => name.startsWith('millrace-')),
      ...pinned().filter((name) => !this.#pinned.includes(name)),
    ];
  }

  [Symbol.dispose](): void {
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

function pinned(): readonly string[] {
  const names = existsSync(pins) ? readdirSync(pins) : [];
  // Of hosts whose lab is gone: those of the other soaks go with them.
  const namespaces = existsSync('/run/netns') ? readdirSync('/run/netns') : [];
  const hasLab = (name: string): boolean => namespaces.some((each) => each.includes(name.slice(0, 8)));
  return names.filter((name) => /^[0-9a-f]{8}-[ab]$/.test(name) && !hasLab(name));
}

describe('the soak', () => {
  test('a wrong option is one clear line', async () => {
    using place = new Place();
    const child = place.start(['--seconds', 'long']);
    const [stderr, [code]] = await Promise.all([text(child.stderr), once(child, 'exit')]);
    assert.equal(code, 2);
    assert.match(stderr, /expected a whole number from 1 to 86400/);
  });

  test('every kind of fault: every byte of 200 connections is right, and nothing is left', async () => {
    using place = new Place();
    const child = place.start(['--seconds', '12', '--seed', '1', '--json']);
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
    assert.deepEqual(place.left(), []);
  });

  describe('when it is ended', { concurrency: true }, () => {
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
});
