// Tests of one guest that many commands share and that is cabled to a host of a lab: output,
// status, killing, files, RDMA, datagrams, and in the end its panic.

import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { MillraceError } from '../../../src/errors.ts';
import { type Host, Lab } from '../../../src/lab/index.ts';
import { Guest } from '../../../src/lab/vm/index.ts';

const root = join(import.meta.dirname, '../../..');
const folder = mkdtempSync(join(tmpdir(), 'millrace-guest, shared-'));
let lab: Lab;
let host: Host;
let linksBefore: string;
let guest: Guest;

before(async () => {
  lab = await Lab.create();
  host = lab.host('a');
  linksBefore = await links();
  guest = await Guest.boot({
    name: 'shared',
    cpus: 1,
    share: folder,
    failureDir: join(folder, 'failures'),
    network: {
      host,
      mtu: 4000,
      address: ['10.88.0.2/24', 'fd88::2/64'],
      hostAddress: ['10.88.0.1/24', 'fd88::1/64'],
      isCaptured: false,
    },
  });
});

after(async () => {
  await guest?.close();
  await lab?.[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true });
});

async function links(): Promise<string> {
  return (await host.run('ip', ['-o', 'link'])).stdout;
}

/** Commands of processes that are neither the kernel's nor the agent's. */
async function processes(): Promise<readonly string[]> {
  const { stdout } = await guest.runOk(['ps', '-e', '-o', 'ppid=,comm=']);
  const rows = stdout.split('\n').map((line) => line.trim().split(/\s+/, 2));
  return rows.flatMap(([parent, name]) => (parent === '2' || parent === '0' || name === undefined ? [] : [name]));
}

test('a command that fails says how, and its evidence is kept', async () => {
  const attempt = guest.runOk(['sh', '-c', 'echo what went wrong >&2; exit 3']);
  await assert.rejects(attempt, (error) => {
    assert.ok(error instanceof MillraceError);
    assert.match(error.message, /in guest shared: status 3\n {2}what went wrong\nkept: .*console\.txt/);
    return existsSync(/kept: (.*)/.exec(error.message)?.[1] ?? '');
  });
});

test('bytes survive the way in and out, on both streams, several commands at once', async () => {
  const inputs = Array.from({ length: 4 }, () => randomBytes(300_000));
  const sumOf = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');
  const results = await Promise.all(
    inputs.map(async (input) => {
      const chunks = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] };
      const onOutput = (chunk: Uint8Array, stream: 'stdout' | 'stderr'): void => void chunks[stream].push(chunk);
      await guest.runOk(['sh', '-c', 'tee /dev/stderr'], { input, onOutput });
      return [sumOf(Buffer.concat(chunks.stdout)), sumOf(Buffer.concat(chunks.stderr))];
    }),
  );
  assert.deepEqual(
    results,
    inputs.map((input) => [sumOf(input), sumOf(input)]),
  );
});

test('exit statuses and signals are exact', async () => {
  const [ok, three, killed] = await Promise.all([
    guest.run(['true']),
    guest.run(['bash', '-c', 'exit 213']),
    guest.run(['bash', '-c', 'kill -SEGV $$']),
  ]);
  assert.deepEqual([ok.status, three.status, killed.status, killed.signal], [0, 213, 139, 'SIGSEGV']);
});

test('a command that takes too long is gone with everything it started', async () => {
  const script = 'setsid sleep 1001 & (sleep 1002 &) ; sleep 1003';
  await assert.rejects(guest.run(['bash', '-c', script], { timeoutMs: 500 }), /did not end within 500 ms/);
  assert.deepEqual(
    (await processes()).filter((name) => name === 'sleep'),
    [],
  );
});

test('what a command left in the background ends with it', async () => {
  const { status } = await guest.run(['bash', '-c', 'sleep 1001 & exit 5']);
  assert.equal(status, 5);
  assert.deepEqual(
    (await processes()).filter((name) => name === 'sleep'),
    [],
  );
});

test('an abort kills the command', async () => {
  const controller = new AbortController();
  const onOutput = (): void => controller.abort();
  const run = guest.run(['sh', '-c', 'echo started; sleep 1001'], { onOutput, signal: controller.signal });
  await assert.rejects(run, { name: 'AbortError' });
  assert.deepEqual(
    (await processes()).filter((name) => name === 'sleep'),
    [],
  );
});

test('the shared folder goes both ways, and nothing else reaches the host', async () => {
  writeFileSync(join(folder, 'in'), 'from the host');
  const probe = join(root, 'millrace-guest-probe');
  await guest.runOk(['sh', '-c', 'cat in > out; echo x > "$PROBE"; cat "$PROBE"'], {
    cwd: folder,
    env: { PROBE: probe },
  });
  assert.equal(readFileSync(join(folder, 'out'), 'utf8'), 'from the host');
  assert.equal(existsSync(probe), false);
});

test('a program of this project runs, from its TypeScript', async () => {
  const program = "import { errorCodes } from './src/errors.ts'; console.log(Object.keys(errorCodes).length > 3)";
  const { stdout } = await guest.runOk([process.execPath, '--input-type=module', '--eval', program], { cwd: root });
  assert.equal(stdout, 'true\n');
});

test('the guest has what RDMA and BPF programs expect of a machine', async () => {
  const script =
    'ulimit -l; uname -r; hostname; stat -f -c %T /sys/fs/cgroup /sys/fs/bpf /tmp /dev/shm; ls /dev/fd/0 /dev/ptmx';
  const { stdout } = await guest.runOk(['bash', '-c', script]);
  const filesystems = ['cgroup2fs', 'bpf_fs', 'tmpfs', 'tmpfs'];
  assert.deepEqual(stdout.trim().split('\n'), [
    'unlimited',
    guest.kernel,
    'shared',
    ...filesystems,
    '/dev/fd/0',
    '/dev/ptmx',
  ]);
});

test('a device that has a wrong name or address is refused', async () => {
  await assert.rejects(guest.addRxe({ name: 'a b' }), /cannot be the name/);
  await assert.rejects(guest.addRxe({ address: ['10.0.0.1'] }), /no address/);
  await assert.rejects(guest.addRxe({ device: 'nosuch0' }), /nosuch0/);
});

test('two processes talk over rxe', async () => {
  const { name } = await guest.addRxe({ name: 'rxe0', device: 'dum0', address: ['10.99.0.1/24', 'fd99::1/64'] });
  const words = ['stdbuf', '-oL', 'ibv_rc_pingpong', '-d', name, '-g', '1', '-n', '50'];
  const { promise: isUp, resolve } = Promise.withResolvers<void>();
  const server = guest.runOk(words, { timeoutMs: 30_000, onOutput: () => resolve() });
  await Promise.race([isUp, server]);
  const client = guest.runOk([...words, '10.99.0.1'], { timeoutMs: 30_000 });
  for (const { stdout } of await Promise.all([server, client])) assert.match(stdout, /50 iters in/);
});

test('rxe takes a cable whose other end is in a namespace of the guest', async () => {
  const script = `
    set -e
    ip netns add peer
    ip link add veth0 mtu 4300 type veth peer name veth1 mtu 4300 netns peer
    ip -n peer addr add 10.98.0.2/24 dev veth1
    ip -n peer addr add fd98::2/64 dev veth1
    ip -n peer link set veth1 up
  `;
  await guest.runOk(['bash', '-c', script]);
  await guest.addRxe({ name: 'rxe1', device: 'veth0', address: ['10.98.0.1/24', 'fd98::1/64'] });
  const { stdout } = await guest.runOk([
    'bash',
    '-c',
    'rdma link show rxe1/1; ip netns exec peer ip -6 addr show dev veth1',
  ]);
  assert.match(stdout, /rxe1\/1 state ACTIVE/);
  assert.match(stdout, /fd98::2\/64/);
  assert.doesNotMatch(stdout, /tentative/);
});

/** Two sockets on one port: the one for IPv6 must not take IPv4 as well. */
const echo = `
  const type = process.argv[1];
  const socket = require('node:dgram').createSocket({ type, ipv6Only: type === 'udp6' });
  socket.on('message', (message, from) => socket.send('echo ' + message, from.port, from.address));
  socket.bind(7000, () => console.log('listening'));
`;
const ask = `
  const socket = require('node:dgram').createSocket(process.argv[1]);
  socket.on('message', (message) => { console.log(String(message)); socket.close(); });
  socket.send('hello', 7000, process.argv[2]);
`;

test('a process in a lab host and one in the guest exchange datagrams', async () => {
  const controller = new AbortController();
  const { promise: areUp, resolve, reject } = Promise.withResolvers<void>();
  let count = 0;
  const onOutput = (chunk: Uint8Array, stream: string): void => {
    if (stream === 'stderr') reject(new Error(Buffer.from(chunk).toString()));
    else if (++count === 2) resolve();
  };
  const { signal } = controller;
  const families = [
    ['udp4', '10.88.0.2'],
    ['udp6', 'fd88::2'],
  ] as const;
  const servers = families.map(([type]) => guest.run([process.execPath, '-e', echo, type], { onOutput, signal }));
  await areUp;
  const answers = families.map((words) =>
    host.run(process.execPath, ['-e', ask, ...words], { signal: AbortSignal.timeout(10_000) }),
  );
  for (const { stdout, stderr } of await Promise.all(answers)) assert.equal(stdout, 'echo hello\n', stderr);
  controller.abort();
  await Promise.allSettled(servers);
});

test('a guest without a recorded card has no capture to save', () => {
  assert.throws(() => guest.saveCapture(join(folder, 'x.pcap')), /has no network card/);
});

test('a panic ends what runs with the kernel’s last words, and later commands at once', async () => {
  const isPanic = (error: unknown): boolean =>
    error instanceof MillraceError && /guest shared: its kernel stopped: sysrq triggered crash/.test(error.message);
  await assert.rejects(guest.run(['sh', '-c', 'echo c > /proc/sysrq-trigger; sleep 100']), isPanic);
  await assert.rejects(guest.run(['true']), isPanic);
});

test('a closed guest says so, leaves nothing in the lab, and closing twice is harmless', async () => {
  await guest.close();
  await guest.close();
  await assert.rejects(guest.run(['true']), MillraceError);
  assert.equal(await links(), linksBefore);
});
