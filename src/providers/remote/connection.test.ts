// What remote devices do besides what all devices do: ways of waiting, a doorbell that several
// threads wait for, shared memory.
// Runs in a process of its own: it awaits its backend before it registers tests.

import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { modifyToRts } from '../../../test/conformance/connect.ts';
import { drain, until } from '../../../test/conformance/wait.ts';
import { Poller, pollEvents, SharedMemory } from '../../native/index.ts';
import { BackendProcess } from '../../remoting/backend/fixtures/backend-process.ts';
import { UnixGuest } from '../../remoting/transports/unix/guest-transport.ts';
import { waitModes } from '../../spin/index.ts';
import { type Cq, Device, GRH_BYTES, type Pd, type Qp, ReceiveBatch, SendBatch } from '../../verbs/index.ts';
import { openRemoteDevice, RemoteConnection } from './index.ts';

const roce = { name: 'soft-roce', soft: { wire: 'roce', address: `127.${process.pid % 250}.7.9` } } as const;
const backend = await BackendProcess.start();
after(() => backend[Symbol.asyncDispose]());
const { socketPath } = backend;

interface Loop {
  readonly pd: Pd;
  readonly cq: Cq;
  readonly one: Qp;
  readonly two: Qp;
}

/** Two QPs of one device that are connected to each other. */
function loop(device: Device): Loop {
  const pd = device.createPd();
  const cq = device.createCq({ channel: device.createChannel() });
  const [one, two] = [pd.createQp({ sendCq: cq }), pd.createQp({ sendCq: cq })];
  modifyToRts(one, 'RTS', 1, { device, qpNumber: two.number, psn: 2 });
  modifyToRts(two, 'RTS', 2, { device, qpNumber: one.number, psn: 1 });
  return { pd, cq, one, two };
}

describe('a remote device', () => {
  test('waits for its backend in every way there is', async () => {
    for (const wait of waitModes) {
      await using other = await BackendProcess.start({ wait });
      using device = openRemoteDevice('soft-shm', { socketPath: other.socketPath, wait });
      const { pd, cq, one } = loop(device);
      const mr = pd.allocate({ sizeBytes: 4096, access: 15 });
      using batch = new SendBatch();
      batch.write(7, mr.address + 64, mr.rkey).sge(mr.lkey, mr.address, 8);
      for (let times = 0; times < 20; times++) {
        mr.bytes.fill(times, 0, 8);
        one.postSend(batch);
        assert.equal((await drain(cq, 1))[0]?.status, 'SUCCESS', wait);
        assert.equal(mr.bytes[64], times);
      }
    }
  });

  test('moves data of memory that the program had before, and of a part of it', async () => {
    using device = openRemoteDevice('soft-tcp', { socketPath });
    const { pd, cq, one } = loop(device);
    using memory = SharedMemory.create({ sizeBytes: 16_384 });
    const source = pd.register(memory, { offset: 4096, sizeBytes: 100 });
    const target = pd.register(memory, { access: 15 });
    source.bytes.fill(9);
    using batch = new SendBatch();
    batch.write(1, target.address + 8192, target.rkey).sge(source.lkey, source.address, 100);
    batch.write(2, target.address, target.rkey).sge(source.lkey, source.address + 1, 100);
    one.postSend(batch);
    const [first, second] = await drain(cq, 2);
    assert.deepEqual([first?.status, second?.status], ['SUCCESS', 'LOC_PROT_ERR']);
    assert.ok(target.bytes.subarray(8192, 8292).every((byte) => byte === 9));
  });

  test('keeps the doorbell for a thread that sleeps when one that polls has taken it', async () => {
    using connection = RemoteConnection.open(UnixGuest.connect(socketPath));
    using device = new Device(connection.openDevice('soft-tcp'));
    const { pd, cq, one } = loop(device);
    const mr = pd.allocate({ sizeBytes: 4096, access: 15 });
    const { channel } = cq;
    assert.ok(channel !== undefined);
    using poller = Poller.create();
    poller.add(channel.fd, pollEvents.in, 1);
    using batch = new SendBatch();
    batch.write(7, mr.address, mr.rkey).sge(mr.lkey, mr.address, 8);
    for (let times = 0; times < 20; times++) {
      cq.arm();
      one.postSend(batch);
      assert.ok(connection.backend.isRung(5e9));
      // As a poll does now and then.
      connection.checkAlive();
      assert.equal(poller.wait(5e9), 1);
      await until('the event', () => channel.take().includes(cq));
      await drain(cq, 1);
    }
  });

  test('sends datagrams where its device can, and only to addresses of its own', async () => {
    await using other = await BackendProcess.start({ devices: [roce] });
    using device = openRemoteDevice('soft-roce', { socketPath: other.socketPath });
    const pd = device.createPd();
    const cq = device.createCq();
    const qp = pd.createQp({ type: 'UD', sendCq: cq });
    qp.modify('INIT', { portNumber: 1, qkey: 0x1234 });
    qp.modify('RTR');
    qp.modify('RTS', { sqPsn: 1 });
    const mr = pd.allocate({ sizeBytes: 4096 });
    mr.bytes.fill(5, 0, 16);
    using receives = new ReceiveBatch();
    receives.receive(1).sge(mr.lkey, mr.address + 1024, 1024);
    qp.postReceive(receives);
    using sends = new SendBatch();
    sends.send(2).sge(mr.lkey, mr.address, 16).to(4711, qp.number, 0x1234);
    assert.throws(() => qp.postSend(sends), /address handle that is not of this protection domain/);
    const { gids, lid } = device.port();
    using ah = pd.createAh({ gid: gids[0] ?? '', lid });
    sends.clear();
    sends.send(2).sge(mr.lkey, mr.address, 16).to(ah.handle, qp.number, 0x1234);
    assert.equal(qp.postSend(sends), 1);
    const completions = await drain(cq, 2);
    assert.deepEqual(completions.map(({ wrId, status }) => `${wrId}:${status}`).toSorted(), ['1:SUCCESS', '2:SUCCESS']);
    assert.ok(mr.bytes.subarray(1024 + GRH_BYTES, 1024 + GRH_BYTES + 16).every((byte) => byte === 5));
  });

  test('says that it cannot map memory of its peers', async () => {
    using device = openRemoteDevice('soft-shm', { socketPath });
    const { one } = loop(device);
    await assert.rejects(one.mapRemote(1, 1, 1), { code: 'MILLRACE_ERR_UNSUPPORTED' });
    assert.equal(one.doorbellFd, undefined);
  });

  test('whose unsignalled requests never end goes on all the same', async () => {
    using device = openRemoteDevice('soft-shm', { socketPath });
    const { pd, cq, one } = loop(device);
    const mr = pd.allocate({ sizeBytes: 4096, access: 15 });
    using batch = new SendBatch({ capacity: 16 });
    for (let row = 0; row < 16; row++) batch.write(row, mr.address, mr.rkey, 0).sge(mr.lkey, mr.address, 8);
    let posted = 0;
    await until('ten queues full', () => {
      posted += one.postSend(batch);
      return posted >= 1280;
    });
    batch.clear();
    batch.write(99, mr.address, mr.rkey).sge(mr.lkey, mr.address, 8);
    await until('room for the last', () => one.postSend(batch) === 1);
    assert.deepEqual(
      (await drain(cq, 1)).map(({ wrId }) => wrId),
      [99],
    );
  });
});
