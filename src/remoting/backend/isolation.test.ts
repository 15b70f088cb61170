// What one guest cannot do: reach another's objects, have more than its share, or disturb anybody
// by protocol errors.
// Runs in a process of its own: it awaits its backend before it registers tests.

import assert from 'node:assert/strict';
import { constants, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { modifyToRts } from '../../../test/conformance/connect.ts';
import { until } from '../../../test/conformance/wait.ts';
import { Fd, fetchAdd, loadAcquire, SharedMemory, storeRelease } from '../../native/index.ts';
import { openRemoteDevice, remoteProvider } from '../../providers/remote/index.ts';
import { CompletionBatch, completionStatuses, Device, SendBatch, sendRow } from '../../verbs/index.ts';
import { areaWord, calls, completionRing, PROTOCOL_VERSION, requestRing } from '../protocol/call-protocol.ts';
import { qpShape } from '../protocol/ring-layout.ts';
import { BackendProcess } from './fixtures/backend-process.ts';
import { RawGuest } from './fixtures/raw-guest.ts';

const limits = { qps: 3, cqs: 3, pds: 2, regions: 3, memoryBytes: 4_000_000, operations: 1000, srqs: 2, devices: 2 };
const backend = await BackendProcess.start({ limits });
const usage = { code: 'MILLRACE_ERR_USAGE' };
const quota = { code: 'MILLRACE_ERR_QUOTA' };
const gone = { code: 'MILLRACE_ERR_BACKEND_GONE' };

after(() => backend[Symbol.asyncDispose]());

const connect = (): RawGuest => RawGuest.connect(backend.socketPath);
const openDevice = (): Device => new Device(remoteProvider({ socketPath: backend.socketPath }).openDevice('soft-shm'));

describe('a guest names only what is its own', () => {
  test('handles that were never given, of another kind, or closed, find nothing', () => {
    using guest = connect();
    const world = guest.world();
    for (const handle of [0, 1, 0xffff, 0xffff_ffff, world.cq, world.mr, world.qp + 65_536]) {
      assert.throws(() => guest.call('closePd', handle), usage);
      assert.throws(() => guest.call('createSrq', handle, 4, 1), usage);
    }
    assert.throws(() => guest.call('grant', world.mr, world.cq, 1), usage);
    guest.call('closeMr', world.mr);
    assert.throws(() => guest.call('closeMr', world.mr), usage);
    assert.throws(() => guest.call('registerMr', world.pd, world.memory, 0, 0, 8, 0, 1), usage);
  });

  test('what has children is not closed before them', () => {
    using guest = connect();
    const world = guest.world();
    for (const [name, handle] of [
      ['closePd', world.pd],
      ['closeCq', world.cq],
      ['closeDevice', world.device],
      ['free', world.memory],
    ] as const) {
      assert.throws(() => guest.call(name, handle), /open/);
    }
    guest.call('closeQp', world.qp);
    guest.call('closeCq', world.cq);
    guest.call('closeMr', world.mr);
    guest.call('closePd', world.pd);
    guest.call('closeDevice', world.device);
  });

  test("another guest's local key opens nothing", async () => {
    using victim = connect();
    const { lkey, address } = victim.world();
    using device = openDevice();
    const pd = device.createPd();
    const cq = device.createCq();
    const [one, two] = [pd.createQp({ sendCq: cq }), pd.createQp({ sendCq: cq })];
    const mr = pd.allocate({ sizeBytes: 4096, access: 15 });
    modifyToRts(one, 'RTS', 1, { device, qpNumber: two.number, psn: 2 });
    modifyToRts(two, 'RTS', 2, { device, qpNumber: one.number, psn: 1 });
    using batch = new SendBatch();
    using completions = new CompletionBatch();
    batch.write(7, mr.address, mr.rkey).sge(lkey, address, 8);
    one.postSend(batch);
    await until('a completion', () => cq.poll(completions) > 0);
    assert.equal(completions.status(0), completionStatuses.LOC_PROT_ERR);
  });

  test('only devices that were granted can be opened', () => {
    using guest = connect();
    assert.throws(() => guest.call('openDevice', 'soft-roce'), /no such device for this guest/);
    assert.throws(() => guest.call('openDevice', '../../etc/passwd'), usage);
  });
});

describe('a guest has at most its share', () => {
  test('each limit is a clear error, and what is closed counts no more', () => {
    using device = openDevice();
    const pd = device.createPd();
    const cq = device.createCq({ entries: 16 });
    const make = () => pd.createQp({ sendCq: cq, sendRequests: 10, receiveRequests: 10 });
    const qps = [make(), make(), make()];
    assert.throws(make, (error: Error) => {
      assert.match(
        error.message,
        /1 more queue pairs: this guest has 3 and may have 3 .*raise the backend's limit 'qps'/,
      );
      return (error as { code?: string }).code === quota.code;
    });
    qps[0]?.close();
    make();
    assert.throws(() => pd.createSrq({ requests: 1000 }), quota);
    assert.throws(() => pd.allocate({ sizeBytes: 5_000_000 }), quota);
    const regions = [1, 2, 3].map(() => pd.allocate({ sizeBytes: 4096 }));
    assert.throws(() => pd.allocate({ sizeBytes: 4096 }), quota);
    for (let times = 0; times < 50; times++) {
      regions.pop()?.close();
      regions.push(pd.allocate({ sizeBytes: 1_000_000 }));
    }
  });

  test('a registration that fails keeps no memory', () => {
    using device = openDevice();
    const pd = device.createPd();
    for (let times = 0; times < 20; times++) {
      assert.throws(() => pd.allocate({ sizeBytes: 1_000_000, access: 2 }), usage);
    }
    pd.allocate({ sizeBytes: 1_000_000 }).close();
  });

  test("memory of the guest's own is passed on, if it cannot be taken away", async () => {
    using device = openDevice();
    const pd = device.createPd();
    using memory = SharedMemory.create({ sizeBytes: 8192 });
    const mr = pd.register(memory, { offset: 4096 });
    assert.equal(mr.sizeBytes, 4096);
    mr.close();
    const { guests } = await backend.status();
    assert.ok(guests.every(({ used }) => used.memoryBytes < 100_000));
  });
});

describe('memory that could be taken away', () => {
  test('in huge pages is neither given nor taken', () => {
    using device = openDevice();
    const pd = device.createPd();
    assert.throws(() => pd.allocate({ sizeBytes: 2 << 20, hugePages: true }), { code: 'MILLRACE_ERR_UNSUPPORTED' });
  });

  test('because it is not sealed against shrinking is not taken', () => {
    using guest = connect();
    const path = join(tmpdir(), `millrace-unsealed-${process.pid}`);
    writeFileSync(path, new Uint8Array(4096));
    using memory = SharedMemory.open(Fd.open(path, constants.O_RDWR), { trusted: true });
    rmSync(path);
    const { id } = guest.transport.offer(memory);
    assert.throws(() => guest.call('adopt', id, 0, 0, 4096, 0), { code: 'MILLRACE_ERR_UNSAFE_MEMORY' });
    // Nothing was passed this time.
    assert.throws(() => guest.call('adopt', id, 0, 0, 4096, 0), { code: 'MILLRACE_ERR_PROTOCOL' });
  });
});

describe('a guest is dropped after a protocol error, and no other guest is', () => {
  test('a call that is not known, or too long, fails alone', () => {
    using guest = connect();
    assert.throws(() => guest.call('hello', PROTOCOL_VERSION + 1, ''), { code: 'MILLRACE_ERR_UNSUPPORTED' });
    assert.throws(() => guest.call('openDevice', 5), /text that goes beyond its call/);
    Object.assign(calls, { nonsense: 999 });
    assert.throws(() => guest.call('nonsense' as 'hello'), /remoting call 999/);
    guest.world();
  });

  test('a ring with more requests than there is room for ends the guest', async () => {
    using guest = connect();
    const { qpWords } = guest.world();
    storeRelease(qpWords, requestRing.produced, 17);
    guest.backend.wake();
    await until('the end', () => !guest.transport.takeDoorbell());
    assert.throws(() => guest.call('listDevices'), gone);
  });

  test('a count of completions read that were never written ends the guest', async () => {
    using guest = connect();
    const world = guest.world();
    guest.connect(world);
    storeRelease(world.cqWords, completionRing.consumed, 1000);
    // It matters as soon as the ring is not empty any more.
    world.qpWords[requestRing.rows + sendRow.opcode] = 77;
    storeRelease(world.qpWords, requestRing.produced, 1);
    guest.backend.wake();
    await until('the end', () => !guest.transport.takeDoorbell());
  });

  test('invalid rows fail as requests do', async () => {
    using guest = connect();
    const world = guest.world();
    guest.connect(world);
    const { qpWords, cqWords, lkey, address } = world;
    const row = requestRing.rows;
    const { rowWords } = qpShape({ sendRequests: 16, receiveRequests: 16, maxSge: 4, maxInlineBytes: 64 }).send;
    qpWords[row + sendRow.opcode] = 77;
    qpWords[row + sendRow.sgeCount] = 0xffff_ffff;
    qpWords[row + sendRow.wrId] = 5;
    qpWords[row + rowWords + sendRow.opcode] = 0;
    qpWords[row + rowWords + sendRow.sgeCount] = 1;
    qpWords.set([address % 2 ** 32, address / 2 ** 32, 0xffff_ffff, lkey], row + rowWords + sendRow.sge);
    storeRelease(qpWords, requestRing.produced, 2);
    guest.backend.wake();
    await until('two completions', () => loadAcquire(cqWords, completionRing.produced) === 2);
    const first = completionRing.rows;
    assert.deepEqual([cqWords[first], cqWords[first + 2]], [5, completionStatuses.LOC_PROT_ERR]);
    assert.equal(cqWords[first + 12 + 2], completionStatuses.WR_FLUSH_ERR);
    const { guests } = await backend.status();
    const counts = guests.map(({ counts: { completions, failedCompletions } }) => [completions, failedCompletions]);
    assert.deepEqual(counts, [[2, 2]]);
  });

  test('a guest that never reads its completions loses its QP, and its thread sleeps', async () => {
    using device = openRemoteDevice('soft-shm', { socketPath: backend.socketPath, label: 'stalled' });
    const pd = device.createPd();
    const cq = device.createCq({ entries: 4 });
    const [one, two] = [pd.createQp({ sendCq: cq }), pd.createQp({ sendCq: cq })];
    modifyToRts(one, 'RTS', 1, { device, qpNumber: two.number, psn: 2 });
    modifyToRts(two, 'RTS', 2, { device, qpNumber: one.number, psn: 1 });
    const mr = pd.allocate({ sizeBytes: 4096, access: 15 });
    using batch = new SendBatch();
    for (let row = 0; row < 64; row++) batch.write(row, mr.address, mr.rkey).sge(mr.lkey, mr.address, 8);
    one.postSend(batch);
    await until('its end', () => one.state === 'ERR');
    const turns = async (): Promise<number> =>
      (await backend.status()).guests.find(({ label }) => label === 'stalled')?.turns ?? Number.NaN;
    const before = await turns();
    using other = openDevice();
    for (let times = 0; times < 100; times++) other.createPd().close();
    const spent = (await turns()) - before;
    assert.ok(spent < 200, `${spent} turns`);
  });

  test('a guest that rings and calls without end keeps no other guest from being served', async () => {
    using flood = connect();
    using device = openRemoteDevice('soft-shm', { socketPath: backend.socketPath, label: 'beside a flood' });
    const startMs = performance.now();
    for (let times = 0; times < 200; times++) {
      flood.transport.ringDoorbell();
      fetchAdd(flood.area, areaWord.callSequence, 1);
      device.createPd().close();
    }
    assert.ok(performance.now() - startMs < 5000, '400 calls took longer than 5 s');
    const { guests } = await backend.status();
    const callsOf = (name: string): number => guests.find(({ label }) => label === name)?.counts.calls ?? 0;
    assert.ok(callsOf('beside a flood') >= 400);
    // The flood was served as well: it is its own calls that it floods.
    assert.ok(callsOf('raw') > 1, 'no call of the flood was served');
  });
});
