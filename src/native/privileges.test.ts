import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { capabilityNamesOf, threadPrivileges } from './privileges.ts';

interface Left {
  readonly name: string;
  readonly hasNoNewPrivileges: boolean;
  readonly sets: Readonly<Record<string, readonly string[]>>;
}

describe('privileges', () => {
  test('are read for each thread of a process', () => {
    const threads = threadPrivileges();
    assert.ok(threads.some(({ thread }) => thread === process.pid));
    assert.ok(threads.length > 1);
    assert.deepEqual(capabilityNamesOf((1n << 39n) | (1n << 12n) | (1n << 63n)), [
      'CAP_NET_ADMIN',
      'CAP_BPF',
      'capability 63',
    ]);
  });

  test('are given up in all threads: busy, asleep, blocking all signals, and made meanwhile or later', () => {
    const program = join(import.meta.dirname, 'fixtures/limited-process.ts');
    const { stdout, stderr, status } = spawnSync(process.execPath, [program], { encoding: 'utf8' });
    assert.equal(status, 0, stderr);
    const threads = JSON.parse(stdout) as readonly Left[];
    // An unprivileged user has had none to begin with.
    const kept = process.geteuid?.() === 0 ? ['CAP_BPF'] : [];
    for (const name of ['SignalInspector', 'V8Worker', 'libuv-worker', 'WorkerThread']) {
      assert.ok(
        threads.some((thread) => thread.name.startsWith(name)),
        `no thread ${name} among ${threads.map((each) => each.name).join()}`,
      );
    }
    for (const { name, sets, hasNoNewPrivileges } of threads) {
      assert.equal(hasNoNewPrivileges, true, name);
      const { CapPrm, CapEff, CapInh, CapAmb, CapBnd } = sets;
      assert.deepEqual([CapPrm, CapEff, CapInh, CapAmb], [kept, kept, [], []], name);
      if (kept.length > 0) assert.deepEqual(CapBnd, kept, name);
    }
  });
});
