// Tests of QEMU's argument list.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type MachineSpec, qemuArguments } from './qemu.ts';

const spec: MachineSpec = {
  name: 'vm',
  accelerator: 'tcg',
  memoryMb: 512,
  cpus: 2,
  kernel: '/k',
  initrd: '/i',
  kernelArguments: ['mr.name=vm'],
  extra: [],
};

/** The values of an option, in order. */
function valuesOf(args: readonly string[], option: string): readonly (string | undefined)[] {
  return args.flatMap((word, index) => (word === option ? [args[index + 1]] : []));
}

test('a guest has no devices but those it was given', () => {
  const args = qemuArguments(spec);
  assert.ok(args.includes('-nodefaults'));
  assert.deepEqual(valuesOf(args, '-device'), [
    'virtio-9p-pci,fsdev=root,mount_tag=millrace-root',
    'virtio-serial-pci',
    'virtserialport,chardev=agent,name=millrace.agent',
  ]);
  assert.deepEqual(valuesOf(args, '-netdev'), []);
});

test('the root is exported read-only', () => {
  assert.match(valuesOf(qemuArguments(spec), '-fsdev')[0] ?? '', /path=\/,readonly=on/);
});

test('a comma in a folder does not end an option', () => {
  const [, share] = valuesOf(qemuArguments({ ...spec, share: '/a,readonly=on' }), '-fsdev');
  assert.match(share ?? '', /path=\/a,,readonly=on,security_model/);
});

test('KVM brings the processor of the host', () => {
  assert.deepEqual(valuesOf(qemuArguments(spec), '-accel'), ['tcg,thread=multi']);
  const args = qemuArguments({ ...spec, accelerator: 'kvm' });
  assert.deepEqual([...valuesOf(args, '-accel'), ...valuesOf(args, '-cpu')], ['kvm', 'host']);
});

test('a network card leads where it shall, and is recorded where it shall', () => {
  const mac = '52:54:00:00:00:01';
  const netdevOf = (backend: Parameters<typeof qemuArguments>[0]['nic']): readonly (string | undefined)[] => {
    const args = qemuArguments({ ...spec, nic: backend });
    return [...valuesOf(args, '-netdev'), ...valuesOf(args, '-object')];
  };
  assert.deepEqual(netdevOf({ backend: { kind: 'user' }, mac }), ['user,id=net0']);
  assert.deepEqual(netdevOf({ backend: { kind: 'tap', device: 'tap1' }, mac }), [
    'tap,id=net0,ifname=tap1,script=no,downscript=no',
  ]);
  assert.deepEqual(netdevOf({ backend: { kind: 'cable', fd: 5 }, mac, captureFile: '/dev/fd/4' }), [
    'stream,id=net0,addr.type=fd,addr.str=5',
    'filter-dump,id=dump0,netdev=net0,file=/dev/fd/4',
  ]);
});

test('shared memory, ports and the monitor are inherited descriptors without names', () => {
  const ports = [{ name: 'millrace.remoting', fd: 5 }];
  const args = qemuArguments({ ...spec, sharing: { memory: { fd: 4, sizeBytes: 4096 }, ports, monitorFd: 6 } });
  assert.deepEqual(valuesOf(args, '-object'), ['memory-backend-file,id=shared,mem-path=/dev/fd/4,size=4096,share=on']);
  assert.deepEqual(valuesOf(args, '-device').slice(3), [
    'ivshmem-plain,memdev=shared',
    'virtserialport,chardev=port0,id=port0,name=millrace.remoting',
  ]);
  assert.deepEqual(valuesOf(args, '-chardev').slice(1), ['socket,id=port0,fd=5', 'socket,id=monitor,fd=6']);
  assert.deepEqual(valuesOf(args, '-mon'), ['chardev=monitor,mode=control']);
});
