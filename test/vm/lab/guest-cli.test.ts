// Tests of `millrace lab vm run`: wrong use, streams and status, Ctrl-C, and that QEMU never
// outlives its starter.

import assert from 'node:assert/strict';
import { type ChildProcessWithoutNullStreams, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { runCaptured } from '../../../src/cli/fixtures/captured-world.ts';
import { Guest } from '../../../src/lab/vm/index.ts';

const bin = join(import.meta.dirname, '../../../src/cli/bin.ts');
/** A guest that costs little. */
const vmRun = [bin, 'lab', 'vm', 'run', '--memory', '512', '--cpus', '1'] as const;

function start(args: readonly string[]): ChildProcessWithoutNullStreams {
  return spawn(process.execPath, [...vmRun, ...args]);
}

/** The pid of the QEMU that a process started. */
async function qemuOf(parent: number): Promise<number> {
  for (;;) {
    const children = readFileSync(`/proc/${parent}/task/${parent}/children`, 'utf8').trim().split(' ');
    const qemu = children.find((pid) => pid !== '' && commandOf(pid).startsWith('qemu-system'));
    if (qemu !== undefined) return Number(qemu);
    await setTimeout(20);
  }
}

function commandOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/comm`, 'utf8');
  } catch {
    return '';
  }
}

async function isGone(pid: number): Promise<true> {
  while (existsSync(`/proc/${pid}`)) await setTimeout(20);
  return true;
}

const wrongUses: readonly (readonly [readonly string[], RegExp])[] = [
  [[], /missing required argument/],
  [['--'], /missing required argument|no command/],
  [['--memory', 'lots', '--', 'true'], /Give a number/],
  [['--memory', '3', '--', 'true'], /memoryMb 3 is not a whole number/],
  [['--timeout', '0', '--', 'true'], /the timeout is 0 s/],
  [['--share', '/no/such', '--', 'true'], /does not exist/],
];

for (const [args, message] of wrongUses) {
  test(`lab vm run ${args.join(' ')} is refused`, async () => {
    const { code, stderr } = await runCaptured(['lab', 'vm', 'run', ...args]);
    assert.equal(code, 2);
    assert.match(stderr, message);
  });
}

test('without QEMU the error says what to install', () => {
  const program = `
    process.env.PATH = '/nonexistent';
    const { QemuProcess } = await import(process.argv[1]);
    new QemuProcess([], []);
  `;
  const unshare = [
    '--mount',
    'sh',
    '-c',
    'mount -t tmpfs none /usr/local/bin; mount --bind /dev/null /usr/bin/qemu-system-x86_64; exec "$@"',
    'sh',
  ];
  const module = join(import.meta.dirname, '../../../src/lab/vm/process.ts');
  const words = [...unshare, process.execPath, '--input-type=module', '--eval', program, module];
  const { stderr } = spawnSync('unshare', words, { encoding: 'utf8' });
  assert.match(stderr, /qemu-system-x86_64, which is not installed; try: apt-get install qemu-system-x86/);
});

test('what QEMU does not accept, it says itself', async () => {
  const boot = Guest.boot({ qemuArguments: ['-device', 'no-such-device'] });
  await assert.rejects(boot, /guest vm: QEMU ended with status 1\n.*'no-such-device' is not a valid device/);
});

test('the command’s output and status are ours, rxe is there, and the network is recorded', () => {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-vm-'));
  try {
    const pcap = join(folder, 'out.pcap');
    const script = 'rdma link; echo err >&2; ip -o -4 addr show dev eth0; echo > /dev/udp/10.0.2.2/9; exit 7';
    const args = ['--rxe', '--pcap', pcap, '--', 'bash', '-c', script];
    const { status, stdout, stderr } = spawnSync(process.execPath, [...vmRun, ...args], { encoding: 'utf8' });
    assert.equal(status, 7, stderr);
    assert.match(stdout, /link rxe0\/1 state ACTIVE[\s\S]*10\.0\.2\.15\/24/);
    assert.match(stderr, /err\n$/);
    // The magic number of pcap files.
    assert.equal(readFileSync(pcap).readUInt32LE(0), 0xa1b2c3d4);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test('Ctrl-C ends the guest and the command with 130', async () => {
  const child = start(['--', 'sh', '-c', 'echo up; sleep 1000']);
  const exit = once(child, 'exit');
  await Promise.race([once(child.stdout, 'data'), exit]);
  const qemu = await qemuOf(child.pid ?? 0);
  child.kill('SIGINT');
  assert.deepEqual(await exit, [130, null]);
  assert.equal(existsSync(`/proc/${qemu}`), false);
});

test('Ctrl-C during the boot does the same', async () => {
  const child = start(['--', 'true']);
  const exit = once(child, 'exit');
  const qemu = await qemuOf(child.pid ?? 0);
  child.kill('SIGINT');
  assert.deepEqual(await exit, [130, null]);
  assert.equal(existsSync(`/proc/${qemu}`), false);
});

test('QEMU dies with a starter that is killed', async () => {
  const child = start(['--', 'true']);
  const exit = once(child, 'exit');
  const qemu = await qemuOf(child.pid ?? 0);
  child.kill('SIGKILL');
  await exit;
  assert.ok(await isGone(qemu));
});
