// Tests of the doctor on this kernel, whole and with things missing.
// Runs alone: it looks at the programs of the whole machine, and at how long a doctor takes.

import assert from 'node:assert/strict';
import { type SpawnOptions, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { describe, test } from 'node:test';
import { run } from '../../../src/cli/run.ts';
import type { World } from '../../../src/cli/world.ts';
import type { Finding, Report } from '../../../src/doctor/index.ts';
import { findCgroup2Mount } from '../../../src/system/cgroup.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { bpfNames } from '../native/kernel-objects.ts';

const NOBODY = 65534;
const mount = findCgroup2Mount();
const isRoot = process.getuid?.() === 0;
const skip = !isRoot ? 'needs root' : mount === null ? 'needs cgroup v2' : false;
const bin = join(import.meta.dirname, '../../../src/cli/bin.ts');

function startDoctor(args: readonly string[] = [], options: SpawnOptions = {}) {
  return spawn(process.execPath, [bin, 'doctor', ...args], { ...options, stdio: ['ignore', 'pipe', 'pipe'] });
}

async function doctor(args: readonly string[] = [], options: SpawnOptions = {}) {
  const child = startDoctor(args, options);
  assert.ok(child.stdout && child.stderr);
  const [stdout, stderr, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'exit')]);
  return { code: code as number | null, stdout, stderr };
}

async function report(options: SpawnOptions = {}): Promise<{ code: number | null; report: Report }> {
  const { code, stdout, stderr } = await doctor(['--json'], options);
  assert.equal(stderr, '');
  return { code, report: JSON.parse(stdout) as Report };
}

function find(report: Report, id: string): Finding {
  const finding = report.findings.find((candidate) => candidate.id === id);
  assert.ok(finding, `no finding ${id}`);
  return finding;
}

function cgroupsLeft(): readonly string[] {
  return readdirSync(mount ?? '/nowhere').filter((name) => name.startsWith('millrace-doctor-'));
}

function worldOf(signal: AbortSignal, columns?: number) {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const sized = columns === undefined ? stdout : Object.assign(stdout, { columns });
  const world: World = { stdin: new PassThrough(), stdout: sized, stderr, env: {}, signal, nowMs: () => 0 };
  return { world, read: async () => await text(stdout.end()) };
}

describe('millrace doctor', () => {
  test('an unknown option or argument is a usage error', async () => {
    for (const wrong of ['--nope', 'more']) {
      const { code, stdout, stderr } = await doctor([wrong]);
      assert.deepEqual([code, stdout], [2, '']);
      assert.match(stderr, /error:/);
    }
  });

  test('a user without privileges gets exit code 5, and "could not tell" about the kernel', async (t) => {
    if (!isRoot) return t.skip('needs root, to become nobody');
    if (!canNobodyRead()) return t.skip('nobody may not read this checkout');
    const { code, report: found } = await report({ uid: NOBODY, gid: NOBODY, cwd: '/' });
    assert.deepEqual([code, found.readiness], [5, 'forbidden']);
    assert.deepEqual([find(found, 'capabilities').answer, find(found, 'cgroup2').answer], ['no', 'no']);
    for (const id of ['connect4', 'sk-msg', 'ringbuf', 'sk-storage', 'btf', 'network-namespaces']) {
      const { answer, isForbidden, fix } = find(found, id);
      assert.deepEqual([id, answer, isForbidden], [id, 'unknown', true]);
      assert.match(fix ?? '', /run as root/);
    }
  });

  test('a machine without tools is told what to install', async () => {
    const { report: found } = await report({ env: { PATH: '/nowhere' } });
    for (const id of ['clang', 'redis']) {
      const { answer, fix } = find(found, id);
      assert.deepEqual([id, answer], [id, 'no']);
      assert.match(fix ?? '', /apt-get install/);
    }
    assert.equal(find(found, 'network-namespaces').answer, 'unknown');
  });

  test('an interrupted doctor says nothing and leaves nothing', { skip }, async () => {
    const { world, read } = worldOf(AbortSignal.abort());
    assert.equal(await run(['doctor'], world), 130);
    assert.equal(await read(), '');
    assert.deepEqual(cgroupsLeft(), []);
  });

  test('the answer of every probe comes within three seconds, and the exit code follows from it', async () => {
    const startMs = performance.now();
    const { code, report: found } = await report();
    assert.ok(performance.now() - startMs < 3000);
    assert.equal(found.v, 1);
    assert.equal(code, { ready: 0, unsupported: 4, forbidden: 5 }[found.readiness]);
    for (const finding of found.findings) {
      assert.ok(['yes', 'no', 'unknown'].includes(finding.answer), finding.id);
      if (finding.answer !== 'yes') assert.ok(finding.consequence && finding.fix, finding.id);
    }
    assert.equal(new Set(found.findings.map((finding) => finding.id)).size, found.findings.length);
  });

  test('root on a kernel with cgroup v2 and BPF can steer', { skip }, async () => {
    const { report: found } = await report();
    for (const id of ['capabilities', 'cgroup2', 'connect4', 'sockmap', 'sk-msg', 'sk-storage', 'ringbuf']) {
      const { answer, detail } = find(found, id);
      assert.equal(answer, 'yes', `${id}: ${detail}`);
    }
  });

  test('people get plain text of at most 100 columns, less on a narrow terminal', async () => {
    for (const columns of [undefined, 200, 70]) {
      const { world, read } = worldOf(new AbortController().signal, columns);
      await run(['doctor'], world);
      const shown = await read();
      const widest = Math.max(...shown.split('\n').map((line) => line.length));
      assert.ok(widest <= Math.min(columns ?? 100, 100), `${widest} columns`);
      assert.ok(!shown.includes('\u001b'));
      assert.match(shown, /^what works here$/m);
    }
  });

  test('no program, map, link or cgroup stays behind', { skip }, async () => {
    await doctor();
    assert.deepEqual(cgroupsLeft(), []);
    await eventually('the programs and maps of a doctor are freed', () => bpfNames('probe_').length === 0);
  });

  test('a doctor that is killed half-way leaves a cgroup at most, and the next one removes it', { skip }, async () => {
    const child = startDoctor();
    const exited = once(child, 'exit');
    await eventually('the doctor is half-way', () => cgroupsLeft().some((name) => name.includes(`-${child.pid}-`)));
    child.kill('SIGKILL');
    assert.deepEqual(await exited, [null, 'SIGKILL']);
    await eventually('what it had loaded is freed', () => bpfNames('probe_').length === 0);
    assert.equal(cgroupsLeft().length, 1);
    await doctor();
    assert.deepEqual(cgroupsLeft(), []);
  });
});

/** Every directory on the way must let others through. */
function canNobodyRead(): boolean {
  for (let path = dirname(bin); path !== '/'; path = dirname(path)) {
    if ((statSync(path).mode & 0o005) !== 0o005) return false;
  }
  return true;
}
