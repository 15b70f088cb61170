import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { fakeMachine, systemError } from './fixtures/fake-machine.ts';
import type { LookUp } from './library.ts';
import { thisMachine } from './machine.ts';
import { probeNetwork } from './network.ts';
import { probeRdma } from './rdma.ts';
import { probeTools } from './tools.ts';
import { probeVirtualization, type TryGuest } from './virtualization.ts';

describe('RDMA', () => {
  const absent: LookUp = (name) => ({ state: 'absent', reason: `${name}: cannot open shared object file` });

  test('no devices and no library are two noes with a way out each', async () => {
    const [devices, library] = await probeRdma(fakeMachine(), undefined, absent);
    assert.deepEqual([devices?.answer, devices?.detail, library?.answer], ['no', 'none', 'no']);
    assert.match(devices?.fix ?? '', /rdma_rxe/);
    assert.match(library?.fix ?? '', /libibverbs1/);
  });

  test('a library that is something else is not taken for it', async () => {
    const other: LookUp = () => ({ state: 'symbol-missing', reason: 'undefined symbol' });
    const [, library] = await probeRdma(fakeMachine(), undefined, other);
    assert.equal(library?.answer, 'no');
    assert.match(library?.detail ?? '', /ibv_query_gid_table/);
  });

  test('why the library drives nothing is told apart', async () => {
    const files = { '/sys/class/infiniband/mlx5_0/ports/1/state': '4: ACTIVE\n' };
    for (const [listed, machine, expected, way] of [
      [null, fakeMachine(), 'no: libibverbs is missing or too old', /libibverbs1/],
      [-38, fakeMachine(), 'no: the kernel has no RDMA for programs', /modprobe ib_uverbs/],
      [-5, fakeMachine(), 'unknown: ibv_get_device_list: EIO', /libibverbs/],
      [[], fakeMachine(), 'no: none', /rdma_rxe/],
      [[], fakeMachine({ files }), 'no: none, though the kernel has mlx5_0', /ibverbs-providers/],
    ] as const) {
      const [, , drivable] = await probeRdma(machine, undefined, absent, () => listed);
      assert.equal(`${drivable?.answer}: ${drivable?.detail}`, expected);
      assert.match(drivable?.fix ?? '', way);
    }
    const [, , drivable] = await probeRdma(fakeMachine(), undefined, absent, () => ['mlx5_0', 'rxe0']);
    assert.deepEqual([drivable?.answer, drivable?.detail], ['yes', 'mlx5_0, rxe0']);
  });

  test('an unreadable port leaves the question open', async () => {
    const files = { '/sys/class/infiniband/mlx5_0/ports/1/state': systemError('EIO') };
    const [devices] = await probeRdma(fakeMachine({ files }), undefined, absent);
    assert.equal(devices?.answer, 'unknown');
  });

  test('devices of which no port is active are a no', async () => {
    const files = { '/sys/class/infiniband/mlx5_0/ports/1/state': '1: DOWN\n' };
    const [devices] = await probeRdma(fakeMachine({ files }), undefined, absent);
    assert.deepEqual([devices?.answer, devices?.detail], ['no', 'mlx5_0 port 1 DOWN']);
    assert.match(devices?.fix ?? '', /link/);
  });

  test('an active port under a real directory is a yes', async () => {
    const root = await mkdtemp(join(tmpdir(), 'millrace-sysfs-'));
    try {
      for (const [port, state] of [
        ['1', '4: ACTIVE'],
        ['2', '1: DOWN'],
      ] as const) {
        const dir = join(root, 'sys/class/infiniband/rxe0/ports', port);
        await mkdir(dir, { recursive: true });
        await writeFile(join(dir, 'state'), `${state}\n`);
      }
      const found: LookUp = () => ({ state: 'found', path: '/no/such/libibverbs.so.1' });
      const [devices, library] = await probeRdma(thisMachine({ root }), undefined, found);
      assert.deepEqual([devices?.answer, devices?.detail], ['yes', 'rxe0 port 1 ACTIVE, rxe0 port 2 DOWN']);
      assert.equal(library?.answer, 'yes');
    } finally {
      await rm(root, { recursive: true });
    }
  });
});

describe('virtual machines', () => {
  const ask = async (tryGuest: TryGuest) => (await probeVirtualization(fakeMachine(), undefined, tryGuest))[0];
  const throwing =
    (code: string): TryGuest =>
    () => {
      throw systemError(code, `open: ${code} (/dev/kvm)`);
    };

  test('no device is a no', async () => {
    assert.equal((await ask(throwing('ENOENT')))?.answer, 'no');
  });

  test('a device this user may not open is not a no', async () => {
    const kvm = await ask(throwing('EACCES'));
    assert.deepEqual([kvm?.answer, kvm?.isForbidden, kvm?.fix], ['unknown', true, 'add the user to the group kvm']);
  });

  test('a guest that does not run is a no although the device is there', async () => {
    const kvm = await ask(() => ({ ran: false, step: 'run it', reason: 'ENOEXEC', isTimeout: false }));
    assert.deepEqual([kvm?.answer, kvm?.detail], ['no', 'run it: ENOEXEC']);
  });

  test('a guest that never comes back leaves the question open', async () => {
    const kvm = await ask(() => ({ ran: false, step: 'run it', reason: 'ETIMEDOUT', isTimeout: true }));
    assert.equal(kvm?.answer, 'unknown');
  });

  test('a guest that ran is a yes', async () => {
    assert.equal((await ask(() => ({ ran: true })))?.answer, 'yes');
  });
});

describe('tools', () => {
  test('a tool that is not installed is a no, and says what to install', async () => {
    const [clang] = await probeTools(fakeMachine());
    assert.deepEqual([clang?.answer, clang?.detail], ['no', 'no clang-19 or clang in PATH']);
    assert.match(clang?.fix ?? '', /apt-get install clang-19/);
  });

  test('a tool that fails or hangs leaves the question open', async () => {
    const commands = { 'clang-19': { isOk: false, stderr: 'libLLVM.so: not found' }, bpftool: new Error('too slow') };
    const [clang, bpftool] = await probeTools(fakeMachine({ commands }));
    assert.deepEqual([clang?.answer, bpftool?.answer], ['unknown', 'unknown']);
    assert.match(clang?.detail ?? '', /libLLVM/);
  });

  test('the second name does when the first is missing', async () => {
    const [clang] = await probeTools(
      fakeMachine({ commands: { clang: { stdout: 'clang version 20.1\nTarget: x\n' } } }),
    );
    assert.deepEqual([clang?.answer, clang?.detail], ['yes', 'clang version 20.1']);
  });

  test('a long version line is cut at a word', async () => {
    const stdout = 'Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=1';
    const findings = await probeNetwork(fakeMachine({ commands: { 'redis-server': { stdout } } }));
    const redis = findings.find((finding) => finding.id === 'redis');
    assert.equal(redis?.detail, 'Redis server v=7.0.15 sha=00000000:0 …');
  });
});

describe('what the lab is built of', () => {
  const ask = (stderr: string) => probeNetwork(fakeMachine({ commands: { unshare: { isOk: false, stderr } } }));

  test('without unshare the question stays open', async () => {
    const [namespaces] = await probeNetwork(fakeMachine());
    assert.deepEqual([namespaces?.answer, namespaces?.fix], ['unknown', 'apt-get install util-linux']);
  });

  test('a refusal is a matter of permission', async () => {
    const [namespaces] = await ask('unshare: unshare failed: Operation not permitted\n');
    assert.deepEqual([namespaces?.answer, namespaces?.isForbidden], ['unknown', true]);
  });

  test('without ip the question stays open', async () => {
    const [namespaces] = await ask('sh: 1: ip: not found\n');
    assert.deepEqual([namespaces?.answer, namespaces?.fix], ['unknown', 'apt-get install iproute2']);
  });

  test('a kernel without it is a no', async () => {
    const [, netem] = await ask('Error: Specified qdisc kind is unknown.\n');
    assert.deepEqual([netem?.answer, netem?.isForbidden], ['no', false]);
    assert.match(netem?.fix ?? '', /CONFIG_NET_SCH_NETEM/);
  });
});
