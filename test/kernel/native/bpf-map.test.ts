// BPF maps, iterators and ring buffers from user space: entries of the right size, and no others.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { BpfMap, BpfObject, RingBuffer, Socket } from '../../../src/native/index.ts';

function bytes(...values: readonly number[]): Uint8Array {
  return new Uint8Array(values);
}

describe('a BPF map', () => {
  const spec = { type: 'hash', name: 'test', keyBytes: 4, valueBytes: 8, maxEntries: 4 } as const;

  test('refuses keys and values of another size: the kernel would read and write past their end', () => {
    using map = BpfMap.create(spec);
    const key = bytes(1, 2, 3, 4);
    for (const wrong of [bytes(), bytes(1), new Uint8Array(5), new Uint8Array(4096)]) {
      assert.throws(() => map.update(wrong, new Uint8Array(8)), { code: 'MILLRACE_ERR_USAGE' });
      assert.throws(() => map.lookup(wrong, new Uint8Array(8)), { code: 'MILLRACE_ERR_USAGE' });
      assert.throws(() => map.delete(wrong), { code: 'MILLRACE_ERR_USAGE' });
      assert.throws(() => map.lookup(key, wrong), { code: 'MILLRACE_ERR_USAGE' });
      assert.throws(() => map.update(key, wrong), { code: 'MILLRACE_ERR_USAGE' });
    }
  });

  test('keeps what it is given, tells its keys, and forgets what is deleted', () => {
    using map = BpfMap.create(spec);
    assert.deepEqual([map.keyBytes, map.valueBytes, map.maxEntries], [4, 8, 4]);
    const value = new Uint8Array(8);
    assert.equal(map.lookup(bytes(1, 0, 0, 0), value), false);
    for (let index = 0; index < 4; index++) map.update(bytes(index, 0, 0, 0), bytes(index, 1, 2, 3, 4, 5, 6, 7));
    assert.throws(() => map.update(bytes(9, 0, 0, 0), value), { code: 'E2BIG' });
    assert.throws(() => map.update(bytes(1, 0, 0, 0), value, 'onlyNew'), { code: 'EEXIST' });
    assert.equal(map.lookup(bytes(3, 0, 0, 0), value), true);
    assert.deepEqual(value, bytes(3, 1, 2, 3, 4, 5, 6, 7));
    assert.deepEqual(
      [...map.keys()].map(([first]) => first).toSorted((a, b) => (a ?? 0) - (b ?? 0)),
      [0, 1, 2, 3],
    );
    assert.equal(map.delete(bytes(3, 0, 0, 0)), true);
    assert.equal(map.delete(bytes(3, 0, 0, 0)), false);
    assert.equal([...map.keys()].length, 3);
  });

  test('that is closed, or was never pinned, says so', () => {
    const map = BpfMap.create(spec);
    map.close();
    assert.throws(() => map.delete(bytes(1, 0, 0, 0)), { code: 'MILLRACE_ERR_CLOSED' });
    assert.throws(() => BpfMap.openPinned('/sys/fs/bpf/surely/not/there'), { code: 'ENOENT' });
    assert.throws(() => BpfMap.openById(0x7fff_ffff), { code: 'ENOENT' });
  });
});

describe('a ring buffer', () => {
  test('gives each record once, in order, also past its end', () => {
    const object = readFileSync(new URL('../../../build/bpf/probe.bpf.o', import.meta.url));
    using loaded = BpfObject.load(object, { name: 'probe', programs: ['probe_ring'], maps: ['probe_records'] });
    using ring = new RingBuffer(loaded.mapFd('probe_records'), 4096);
    assert.equal(
      ring.consume(() => assert.fail('nothing was told')),
      0,
    );
    const context = new Uint8Array(8);
    const view = new DataView(context.buffer);
    // Records of 24 bytes with their headers: the ring of 4096 goes round several times.
    let next = 0;
    for (let round = 0; round < 20; round++) {
      for (let index = 0; index < 50; index++) {
        view.setBigUint64(0, BigInt(round * 50 + index), true);
        assert.equal(loaded.run('probe_ring', context), 0);
      }
      const count = ring.consume((record, offset, length) => {
        assert.equal(length, 16);
        assert.equal(new DataView(record.buffer, record.byteOffset + offset).getUint32(0, true), next++);
      });
      assert.equal(count, 50);
    }
    assert.equal(next, 1000);
  });
});

describe('an iterator', () => {
  test('goes over the entries that a map of sockets has when it is read', () => {
    const object = readFileSync(new URL('../../../build/bpf/direct.bpf.o', import.meta.url));
    using loaded = BpfObject.load(object, { name: 'direct' });
    using map = loaded.openMap('offered');
    assert.throws(() => loaded.iterate('read_identities', 'nothing'), { code: 'MILLRACE_ERR_USAGE' });
    const iterator = loaded.iterate('read_identities', 'offered');
    assert.equal(iterator.read().length, 0);
    const sockets = Array.from({ length: 2000 }, () => Socket.stream('ipv4'));
    const key = ({ fd }: Socket): Uint8Array => new Uint8Array(Int32Array.of(fd).buffer);
    for (const [index, socket] of sockets.entries())
      map.update(key(socket), bytes(index, index >> 8, 0, 0, 0, 0, 0, 0));
    const rows = new Uint32Array(iterator.read().slice().buffer);
    const numbers = Array.from({ length: rows.length / 6 }, (_, index) => rows[index * 6]);
    assert.deepEqual(new Set(numbers), new Set(sockets.keys()));
    assert.equal(numbers.length, sockets.length);
    for (const socket of sockets) socket.close();
    assert.equal(iterator.read().length, 0);
    iterator.close();
    assert.throws(() => iterator.read(), { code: 'MILLRACE_ERR_CLOSED' });
  });
});
