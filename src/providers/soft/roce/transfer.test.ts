// Whole messages between two devices: of all sizes around the MTU, very long ones, and through a
// socket that overflows.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Rig } from '../../../../test/conformance/rig.ts';
import { drain } from '../../../../test/conformance/wait.ts';
import { type FaultPlan, type Mtu, openSoftDevice } from '../../index.ts';
import { openSoftPair, unusedAddress } from '../fixtures/soft-pair.ts';
import { pattern } from './fixtures/qp-under-test.ts';
import { droppedDatagrams, starve } from './fixtures/udp-socket.ts';

const mtus: readonly Mtu[] = [256, 512, 1024, 2048, 4096];
const MIB = 1 << 20;

/** Quickly, and different for each seed: 4 bytes a step. */
function fill(bytes: Uint8Array, seed: number): void {
  const words = new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.length >>> 2);
  for (let at = 0; at < words.length; at++) words[at] = Math.imul(at + seed, 0x9e37_79b1);
}

function sizesAround(mtu: number): number[] {
  return [0, 1, mtu - 1, mtu, mtu + 1, 2 * mtu, 10 * mtu - 1, 10 * mtu, 10 * mtu + 3];
}

describe('RoCE transfers', () => {
  test('a path MTU that the interface cannot carry is refused', async () => {
    await using pair = openSoftPair('roce');
    assert.equal(pair.left.port().activeMtu, 4096);
    const attributes = { pathMtu: 8192 as Mtu };
    assert.throws(() => Rig.build(pair, { left: { attributes }, right: { attributes } }), /pathMtu/);
  });

  for (const pathMtu of mtus) {
    test(`messages of all sizes around an MTU of ${pathMtu} arrive as they were, one after another`, async () => {
      await using pair = openSoftPair('roce');
      const options = { attributes: { pathMtu }, sizeBytes: 2 * MIB };
      using rig = Rig.build(pair, { left: options, right: options });
      const { left, right } = rig;
      const { address, rkey } = right.mr;
      const sizes = sizesAround(pathMtu);
      const slot = 11 * pathMtu;
      for (const [index, size] of sizes.entries()) {
        left.bytes(index * slot, size).set(pattern(size, index));
        right.receive(index, index * slot, slot);
      }
      left.post((batch) => {
        for (const [index, size] of sizes.entries()) batch.send(index).sge(...left.at(index * slot, size));
      });
      const received = await right.received(sizes.length);
      assert.deepEqual(
        received.map(({ wrId, status, byteLength }) => [wrId, status, byteLength]),
        sizes.map((size, index) => [index, 'SUCCESS', size]),
      );
      const writes = 9 * slot;
      left.post((batch) => {
        for (const [index, size] of sizes.entries()) {
          batch.write(index, address + writes + index * slot, rkey).sge(...left.at(index * slot, size));
        }
      });
      const reads = 18 * slot;
      left.post((batch) => {
        for (const [index, size] of sizes.entries()) {
          batch.read(index, address + writes + index * slot, rkey).sge(...left.at(reads + index * slot, size));
        }
      });
      const sent = await left.sent(3 * sizes.length);
      assert.ok(sent.every(({ status }) => status === 'SUCCESS'));
      for (const [index, size] of sizes.entries()) {
        const expected = pattern(size, index);
        assert.deepEqual(right.bytes(index * slot, size), expected, `SEND of ${size}`);
        assert.deepEqual(right.bytes(writes + index * slot, size), expected, `WRITE of ${size}`);
        assert.deepEqual(left.bytes(reads + index * slot, size), expected, `READ of ${size}`);
        assert.equal(right.bytes(writes + index * slot + size, 1)[0], 0, `behind a WRITE of ${size}`);
      }
    });
  }

  for (const pathMtu of [1024, 4096] as const) {
    test(`a WRITE and a READ of 64 MiB with an MTU of ${pathMtu} are right to the last byte`, async () => {
      await using pair = openSoftPair('roce');
      const options = { attributes: { pathMtu, timeout: 18 }, sizeBytes: 64 * MIB };
      using rig = Rig.build(pair, { left: options, right: options });
      const { left, right } = rig;
      fill(left.mr.bytes, 1);
      left.post((batch) => batch.write(1, right.mr.address, right.mr.rkey).sge(...left.at(0, 64 * MIB)));
      const [written] = await drain(left.sendCq, 1, 30_000);
      assert.equal(written?.status, 'SUCCESS');
      assert.equal(Buffer.compare(left.mr.bytes, right.mr.bytes), 0);
      fill(right.mr.bytes, 2);
      left.post((batch) => batch.read(2, right.mr.address, right.mr.rkey).sge(...left.at(0, 64 * MIB)));
      const [read] = await drain(left.sendCq, 1, 30_000);
      assert.equal(read?.status, 'SUCCESS');
      assert.equal(Buffer.compare(left.mr.bytes, right.mr.bytes), 0);
    });
  }

  const plans: Readonly<Record<string, Omit<FaultPlan, 'seed'>>> = {
    'packets are lost': { drop: 0.03 },
    'packets come twice': { duplicate: 0.2 },
    'packets are damaged': { corrupt: 0.03 },
    'packets overtake each other': { delay: { rate: 0.02, maxMs: 3 } },
    'all of that happens': { drop: 0.01, duplicate: 0.05, corrupt: 0.01, delay: { rate: 0.01, maxMs: 3 } },
  };
  for (const [name, plan] of Object.entries(plans)) {
    test(`long messages of all kinds are right when ${name}`, async () => {
      const seed = Number(process.env.MILLRACE_FUZZ_SEED ?? Date.now() % 1_000_000);
      await using pair = openSoftPair('roce', { left: { seed, ...plan }, right: { seed: seed + 1, ...plan } });
      const bytes = 300 * 1024 + 7;
      const options = { sizeBytes: 4 * MIB, attributes: { pathMtu: 1024, timeout: 15 } } as const;
      using rig = Rig.build(pair, { left: options, right: options });
      const { left, right } = rig;
      const { address, rkey } = right.mr;
      fill(left.mr.bytes, seed);
      fill(right.mr.bytes, seed + 1);
      const theirs = right.mr.bytes.slice();
      const word = (end: typeof left): bigint => new DataView(end.mr.bytes.buffer).getBigUint64(3 * MIB, true);
      const before = word(right);
      right.receive(1, 0, MIB);
      left.post((batch) => {
        batch.write(1, address + MIB, rkey).sge(...left.at(MIB, bytes));
        batch.read(2, address + 2 * MIB, rkey).sge(...left.at(2 * MIB, bytes));
        for (let times = 0; times < 50; times++) {
          batch.fetchAdd(3, address + 3 * MIB, rkey, 1).sge(...left.at(3 * MIB, 8));
        }
        batch.send(4).sge(...left.at(0, bytes));
      });
      const sent = await drain(left.sendCq, 53, 20_000);
      assert.ok(
        sent.every(({ status }) => status === 'SUCCESS'),
        `seed ${seed}`,
      );
      assert.equal((await right.received())[0]?.byteLength, bytes);
      assert.equal(Buffer.compare(right.bytes(0, bytes), left.bytes(0, bytes)), 0, 'the SEND');
      assert.equal(Buffer.compare(right.bytes(MIB, bytes), left.bytes(MIB, bytes)), 0, 'the WRITE');
      assert.equal(
        Buffer.compare(left.bytes(2 * MIB, bytes), theirs.subarray(2 * MIB, 2 * MIB + bytes)),
        0,
        'the READ',
      );
      assert.equal(word(right), BigInt.asUintN(64, before + 50n), 'the atomics');
      assert.equal(word(left), BigInt.asUintN(64, before + 49n), 'what the last atomic found');
    });
  }

  test('a hundred QPs through sockets that overflow get everything across, each byte once', async () => {
    const [here, there] = [unusedAddress(), unusedAddress()];
    using devices = new DisposableStack();
    const left = devices.use(openSoftDevice({ wire: 'roce', address: here }));
    const right = devices.use(openSoftDevice({ wire: 'roce', address: there }));
    for (const address of [here, there]) starve(address, 65_536);
    const count = 100;
    const bytes = 48 * 1024 + 5;
    const options = { sizeBytes: 2 * count * 65_536, cqEntries: 4096, attributes: { timeout: 17, retryCount: 7 } };
    using rig = Rig.build({ left, right }, { left: options, right: options });
    const qps = Array.from({ length: count }, () => [rig.left.createQp(), rig.right.createQp()] as const);
    for (const [one, other] of qps) rig.connect(one, other);
    fill(rig.left.mr.bytes, 3);
    fill(rig.right.mr.bytes, 4);
    const half = count * 65_536;
    const theirs = rig.right.mr.bytes.slice(half);
    const { address, rkey } = rig.right.mr;
    for (const [index, [qp, other]] of qps.entries()) {
      const at = index * 65_536;
      rig.right.receive(index, at + 60_000, 8, other);
      rig.left.post((batch) => {
        batch.write(index, address + at, rkey).sge(...rig.left.at(at, bytes));
        batch.read(index, address + half + at, rkey).sge(...rig.left.at(half + at, bytes));
        batch.fetchAdd(index, address + at + 65_528, rkey, 1).sge(...rig.left.at(half + at + 65_528, 8));
        batch.send(index).sge(...rig.left.at(at, 8));
      }, qp);
    }
    const before = new BigUint64Array(rig.right.mr.bytes.buffer, rig.right.mr.bytes.byteOffset).slice();
    const sent = await drain(rig.left.sendCq, 4 * count, 30_000);
    assert.ok(sent.every(({ status }) => status === 'SUCCESS'));
    assert.equal((await rig.right.received(count)).length, count);
    const after = new BigUint64Array(rig.right.mr.bytes.buffer, rig.right.mr.bytes.byteOffset);
    for (let index = 0; index < count; index++) {
      const at = index * 65_536;
      assert.deepEqual(rig.right.bytes(at, bytes), rig.left.bytes(at, bytes), `what QP ${index} wrote`);
      assert.deepEqual(rig.left.bytes(half + at, bytes), theirs.subarray(at, at + bytes), `what QP ${index} read`);
      const word = (at + 65_528) / 8;
      assert.equal(after[word], (before[word] ?? 0n) + 1n, `what QP ${index} added`);
    }
    assert.ok(droppedDatagrams(there) > 0, 'nothing was lost: the test proves nothing');
  });
});
