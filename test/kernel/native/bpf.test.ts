// Tests of loading, attaching and pinning BPF programs.
// Runs alone: it looks at the programs of the whole machine.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Worker } from 'node:worker_threads';
import { TrialCgroup } from '../../../src/doctor/cgroup.ts';
import { type BpfLoadOptions, BpfObject } from '../../../src/native/bpf.ts';
import { BpfError } from '../../../src/native/bpf-error.ts';
import { BpfMap } from '../../../src/native/bpf-map.ts';
import { Fd } from '../../../src/native/fd.ts';
import { findCgroup2Mount } from '../../../src/system/cgroup.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { attachedTo } from './kernel-objects.ts';

const mount = findCgroup2Mount();
const skip = process.getuid?.() !== 0 ? 'needs root' : mount === null ? 'needs cgroup v2' : false;
const objectPath = (name: string): string => join(import.meta.dirname, '../../../build/bpf', name);
const bytes = readFileSync(objectPath('probe.bpf.o'));
const name = 'probe.bpf.o';

function load(options: Partial<BpfLoadOptions> = {}): BpfObject {
  return BpfObject.load(bytes, { name, ...options });
}

function openDescriptors(): number {
  return readdirSync('/proc/self/fd').length;
}

describe('a BPF object that is no such thing', () => {
  test('garbage is refused with what libbpf said', () => {
    assert.throws(() => BpfObject.load(new Uint8Array(0), { name }), { name: 'BpfError', code: 'EINVAL' });
    for (const garbage of [new Uint8Array(1000), Buffer.from('#!/bin/sh\n')]) {
      assert.throws(
        () => BpfObject.load(garbage, { name }),
        (error) => error instanceof BpfError && error.message.startsWith('open BPF: ') && error.log.length > 0,
      );
    }
  });

  test('a truncated object is refused, wherever it was cut', () => {
    for (let size = 0; size < bytes.length; size += 97) {
      assert.throws(() => BpfObject.load(bytes.subarray(0, size), { name }), BpfError, `cut at ${size}`);
    }
  });

  test('an object for another machine is refused', () => {
    const elf = readFileSync(process.execPath).subarray(0, 65536);
    assert.throws(() => BpfObject.load(elf, { name }), BpfError);
  });

  test('wrong types are refused before anything is opened', () => {
    for (const wrong of [undefined, null, 7, 'text', {}, [1, 2], new Uint16Array(8), new ArrayBuffer(8)]) {
      assert.throws(() => BpfObject.load(wrong as never, { name }), TypeError);
    }
    assert.throws(() => BpfObject.load(bytes, { name: 7 as never }), TypeError);
    assert.throws(() => BpfObject.load(bytes, { name: 'x'.repeat(64) }), RangeError);
  });

  test('an unknown program or map is a mistake that lists the known ones', () => {
    const message = /has no program "nobody" here; it has: probe_connect4, /;
    assert.throws(() => load({ programs: ['nobody'] }), { code: 'MILLRACE_ERR_USAGE', message });
    assert.throws(() => load({ maps: ['nothing'] }), { code: 'MILLRACE_ERR_USAGE', message: /no map "nothing"/ });
  });
});

describe('a BPF object in the kernel', { skip }, () => {
  let cgroup: TrialCgroup;
  let directory: Fd;
  before(() => {
    cgroup = TrialCgroup.create(mount ?? '');
    directory = Fd.open(cgroup.path, 0);
  });
  after(() => {
    directory.close();
    cgroup.close();
  });

  test("a program the verifier refuses carries the verifier's log in its error", () => {
    const folder = mkdtempSync(join(tmpdir(), 'millrace-bpf-'));
    try {
      const source = `
        #include <linux/bpf.h>
        #include <bpf/bpf_helpers.h>
        SEC("cgroup/connect4") int refused(struct bpf_sock_addr *ctx) { return *(int *)((char *)ctx + 4000); }
        char licence[] SEC("license") = "GPL";`;
      writeFileSync(join(folder, 'refused.c'), source);
      const flags = ['-O2', '-g', '-target', 'bpf', '-I/usr/include/x86_64-linux-gnu'];
      const compiled = spawnSync('clang-19', [...flags, '-c', 'refused.c', '-o', 'refused.o'], { cwd: folder });
      assert.equal(compiled.status, 0, String(compiled.stderr));
      assert.throws(
        () => BpfObject.load(readFileSync(join(folder, 'refused.o')), { name: 'refused' }),
        (error) =>
          error instanceof BpfError &&
          error.code === 'EACCES' &&
          /invalid bpf_context access off=4000/.test(error.message) &&
          /BEGIN PROG LOAD LOG/.test(error.log),
      );
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  test('a program without the map it uses is not loaded', () => {
    assert.throws(() => load({ programs: ['probe_sockops'], maps: [] }), BpfError);
  });

  test('a program that was not chosen is not there', () => {
    using object = load({ programs: ['probe_connect4'], maps: [] });
    assert.deepEqual(object.programs, ['probe_connect4']);
    assert.throws(() => object.programFd('probe_connect6'), { code: 'MILLRACE_ERR_USAGE' });
    assert.throws(() => object.mapFd('probe_sockets'), { code: 'MILLRACE_ERR_USAGE', message: /it has: none/ });
  });

  test('a target that cannot be attached to is an error of the kernel', () => {
    using object = load({ programs: ['probe_connect4'], maps: [] });
    using file = Fd.open('/dev/null', 0);
    for (const target of [-1, 1_000_000]) {
      assert.throws(() => object.attach('probe_connect4', target), { code: 'EBADF', syscall: 'bpf_link_create' });
    }
    assert.throws(() => object.attach('probe_connect4', file.fd), { name: 'SystemError', syscall: 'bpf_link_create' });
    assert.throws(() => object.attach('probe_connect4', 'x' as never), TypeError);
    assert.throws(() => object.run('probe_connect4'), { name: 'SystemError', syscall: 'bpf_prog_run' });
    assert.throws(() => object.run('probe_connect4', new Uint8Array(70_000)), RangeError);
  });

  test('after close every use is refused, and closing again is harmless', () => {
    const object = load({ programs: ['probe_connect4'], maps: [] });
    object.programFd('probe_connect4');
    object.close();
    object.close();
    assert.ok(object.isClosed);
    const closed = { code: 'MILLRACE_ERR_CLOSED', message: /probe\.bpf\.o is closed/ };
    assert.throws(() => object.programFd('probe_connect4'), closed);
    assert.throws(() => object.attach('probe_connect4', directory.fd), closed);
    assert.throws(() => object.run('probe_connect4'), closed);
  });

  test('an attached program is seen on its cgroup until its link closes', () => {
    using object = load({ programs: ['probe_connect4'], maps: [] });
    const link = object.attach('probe_connect4', directory.fd);
    assert.deepEqual(attachedTo(cgroup.path), ['probe_connect4']);
    link.close();
    link.close();
    assert.deepEqual(attachedTo(cgroup.path), []);
  });

  test('closing the object closes what was attached through it', () => {
    const object = load({ programs: ['probe_connect4', 'probe_sk_msg'], maps: ['probe_sockets'] });
    const link = object.attach('probe_connect4', directory.fd);
    const onMap = object.attachToMap('probe_sk_msg', 'probe_sockets');
    object.close();
    assert.deepEqual([link.isClosed, onMap.isClosed], [true, true]);
    assert.deepEqual(attachedTo(cgroup.path), []);
  });

  test('a program set on a sockhash leaves room for the next one when it is closed', () => {
    using object = load({ programs: ['probe_sk_msg'], maps: ['probe_sockets'] });
    object.attachToMap('probe_sk_msg', 'probe_sockets').close();
    object.attachToMap('probe_sk_msg', 'probe_sockets').close();
  });

  test('a program runs on request and sees the kernel by its own types', () => {
    const withTypes = readFileSync(objectPath('probe-btf.bpf.o'));
    using object = BpfObject.load(withTypes, { name: 'probe-btf', programs: ['probe_core_read'] });
    assert.equal(object.run('probe_core_read'), process.pid);
  });

  test('a map is made by itself, and nonsense is refused by the kernel', () => {
    using map = BpfMap.create({ type: 'hash', name: 'probe_map', keyBytes: 4, valueBytes: 8, maxEntries: 16 });
    assert.ok(map.fd >= 0);
    const spec = { type: 'hash', name: 'probe_map', keyBytes: 4, valueBytes: 8, maxEntries: 0 } as const;
    assert.throws(() => BpfMap.create(spec), { code: 'EINVAL', syscall: 'bpf_map_create' });
    assert.throws(() => BpfMap.create({ ...spec, name: 'x'.repeat(16) }), RangeError);
  });

  test('loading, attaching and failing again and again leaves no descriptor open', () => {
    const cycle = (): void => {
      using object = load();
      object.attach('probe_sockops', directory.fd);
      object.attachToMap('probe_sk_msg', 'probe_sockets');
      assert.throws(() => load({ programs: ['probe_ringbuf'], maps: [] }), BpfError);
      assert.throws(() => object.attach('probe_connect4', -1));
    };
    cycle();
    const open = openDescriptors();
    for (let i = 0; i < 20; i++) cycle();
    assert.equal(openDescriptors(), open);
  });

  test('an object that nobody closed is freed when it is collected', async () => {
    setFlagsFromString('--expose-gc');
    const collect = runInNewContext('gc') as () => void;
    const open = openDescriptors();
    (() => void load())();
    assert.ok(openDescriptors() > open);
    await eventually('the descriptors of a collected object are closed', () => {
      collect();
      return openDescriptors() === open;
    });
  });

  test('a thread that is terminated leaves nothing attached', async () => {
    const workerData = { bytes: objectPath(name), cgroup: cgroup.path };
    const worker = new Worker(new URL('./hold-bpf.ts', import.meta.url), { workerData });
    assert.deepEqual(await once(worker, 'message'), ['attached']);
    assert.deepEqual(attachedTo(cgroup.path), ['probe_connect6']);
    await worker.terminate();
    await eventually('the link of a terminated thread is gone', () => attachedTo(cgroup.path).length === 0);
  });
});
