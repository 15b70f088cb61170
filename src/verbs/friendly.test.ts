// The friendly layer on the wires of the soft device: connectQp, promises and `for await`, two
// devices in one thread.

import assert from 'node:assert/strict';
import { duplexPair } from 'node:stream';
import { describe, test } from 'node:test';
import {
  access,
  type Connected,
  type Cq,
  connectQp,
  type Device,
  type Mr,
  openDevice,
  type Qp,
  ReceiveBatch,
  Requests,
} from '../providers/index.ts';

const everything = access.localWrite | access.remoteWrite | access.remoteRead | access.remoteAtomic;

interface Side extends Disposable {
  readonly device: Device;
  readonly cq: Cq;
  readonly qp: Qp;
  readonly mr: Mr;
  readonly connected: Connected<'all'>;
}

function makeSide(name: string): Omit<Side, 'connected' | typeof Symbol.dispose> {
  const device = openDevice(name);
  const cq = device.createCq({ entries: 64, channel: device.createChannel() });
  const pd = device.createPd();
  const qp = pd.createQp({ sendCq: cq, sendRequests: 8, receiveRequests: 8 });
  return { device, cq, qp, mr: pd.allocate({ sizeBytes: 4096, access: everything }) };
}

async function connectedPair(name: string): Promise<[Side, Side]> {
  const sides = [makeSide(name), makeSide(name)] as const;
  const sockets = duplexPair();
  const connections = await Promise.all(
    sides.map(({ qp, mr }, index) => connectQp(sockets[index], qp, { regions: { all: mr }, expect: ['all'] })),
  );
  const whole = (index: 0 | 1): Side => ({
    ...sides[index],
    connected: connections[index],
    [Symbol.dispose]: () => sides[index].device.close(),
  });
  return [whole(0), whole(1)];
}

for (const name of ['soft-shm', 'soft-tcp']) {
  describe(`the friendly layer on ${name}`, () => {
    test('every operation, awaited', async () => {
      const [one, other] = await connectedPair(name);
      using _one = one;
      using _other = other;
      using ours = new Requests(one.qp);
      using theirs = new Requests(other.qp);
      const remote = one.connected.regions.all;
      one.mr.bytes.set(Buffer.from('hello'));

      const received = theirs.receive(other.mr, 1024, 64);
      await ours.send(one.mr, 0, 5, { imm: 7 });
      assert.deepEqual(await received, { byteLength: 5, imm: 7 });
      assert.equal(Buffer.from(other.mr.bytes.subarray(1024, 1029)).toString(), 'hello');

      const told = theirs.receive(other.mr, 0, 0);
      await ours.write(one.mr, 0, 5, remote, 2048, { imm: 8 });
      assert.deepEqual(await told, { byteLength: 5, imm: 8 });
      await ours.read(one.mr, 100, 5, remote, 2048);
      assert.equal(Buffer.from(one.mr.bytes.subarray(100, 105)).toString(), 'hello');

      assert.equal(await ours.fetchAdd(remote, 8, 2n ** 40n), 0n);
      assert.equal(await ours.compareSwap(remote, 8, 2n ** 40n, 5n), 2n ** 40n);
      assert.equal(await ours.fetchAdd(remote, 8, 0n), 5n);
    });

    test('more requests than the queue has places all complete', async () => {
      const [one, other] = await connectedPair(name);
      using _one = one;
      using _other = other;
      using ours = new Requests(one.qp);
      const remote = one.connected.regions.all;
      const values = await Promise.all(Array.from({ length: 100 }, () => ours.fetchAdd(remote, 0, 1n)));
      assert.deepEqual(
        values,
        Array.from({ length: 100 }, (_, index) => BigInt(index)),
      );
    });

    test('a wrong key rejects with the status of the device, and so do later requests', async () => {
      const [one, other] = await connectedPair(name);
      using _one = one;
      using _other = other;
      using ours = new Requests(one.qp);
      const wrong = { ...one.connected.regions.all, rkey: 12_345 };
      await assert.rejects(ours.write(one.mr, 0, 8, wrong, 0), { name: 'CompletionError', code: 'REM_ACCESS_ERR' });
      assert.equal(one.qp.state, 'ERR');
      await assert.rejects(ours.send(one.mr, 0, 8), { code: 'WR_FLUSH_ERR' });
    });

    test('a peer that closes its QP ends what is awaited', async () => {
      const [one, other] = await connectedPair(name);
      using _one = one;
      using ours = new Requests(one.qp);
      // Once there and back, so that both sides are connected.
      await ours.read(one.mr, 0, 8, one.connected.regions.all, 0);
      const received = ours.receive(one.mr, 0, 8);
      other.device.close();
      await assert.rejects(received, { name: 'CompletionError' });
    });

    test('a loop over the completions of a CQ sees them as they come', async () => {
      const [one, other] = await connectedPair(name);
      using _one = one;
      using _other = other;
      using ours = new Requests(one.qp);
      using receives = new ReceiveBatch();
      for (let index = 0; index < 3; index++) {
        receives.receive(index).sge(other.mr.lkey, other.mr.address, 64);
      }
      other.qp.postReceive(receives);
      const sending = (async (): Promise<void> => {
        for (let index = 0; index < 3; index++) await ours.send(one.mr, 0, index + 1);
      })();
      const lengths: number[] = [];
      for await (const { wrId, status, byteLength } of other.cq) {
        assert.deepEqual([wrId, status], [lengths.length, 'SUCCESS']);
        if (lengths.push(byteLength) === 3) break;
      }
      assert.deepEqual(lengths, [1, 2, 3]);
      await sending;
    });
  });
}
