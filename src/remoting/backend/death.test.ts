// The end of one side, at any point: the backend frees what the guest had, and the guest learns
// that its backend is gone.

import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { describe, test } from 'node:test';
import { modifyToRts } from '../../../test/conformance/connect.ts';
import { drain, until } from '../../../test/conformance/wait.ts';
import { fetchAdd, Poller, pollEvents, storeRelease } from '../../native/index.ts';
import { openRemoteDevice } from '../../providers/remote/index.ts';
import { type Cq, type Device, type Qp, ReceiveBatch, SendBatch } from '../../verbs/index.ts';
import { areaWord, calls, completionRing, requestRing } from '../protocol/call-protocol.ts';
import { BackendProcess } from './fixtures/backend-process.ts';
import { RawGuest } from './fixtures/raw-guest.ts';

/**
 * How many guests end without closing anything first. They close their descriptors, as the kernel
 * does for a killed process.
 */
const DEATHS = 200;
/** How many of them are processes that are killed: MILLRACE_KILLED=200 for all of them. */
const KILLED = Number(process.env.MILLRACE_KILLED ?? 4);
const FREED_WITHIN_MS = 1000;

/** What guests do before they end; each may be the last. */
function steps(guest: RawGuest): readonly (() => void)[] {
  let world: ReturnType<RawGuest['world']> | undefined;
  return [
    () => {
      world = guest.world();
    },
    () => void guest.call('createSrq', world?.pd ?? 0, 16, 2),
    () => void guest.call('allocate', 1 << 20, 0, 0),
    // Never mapped: the descriptor is in the socket when it ends.
    () => void guest.call('createCq', world?.device ?? 0, 16),
    () => void guest.call('modifyQp', world?.qp ?? 0, 1, 0b101, 1, 15),
    () => {
      if (world === undefined) return;
      // Receives are posted, a CQ is armed, and the doorbell is rung.
      storeRelease(world.cqWords, completionRing.armed, 2);
      storeRelease(world.qpWords, 32 + 16 * 32 + requestRing.produced, 1);
      guest.backend.wake();
    },
    () => {
      // In the middle of a call.
      guest.area[areaWord.callId] = calls.listDevices;
      fetchAdd(guest.area, areaWord.callSequence, 1);
      guest.backend.wake();
    },
  ];
}

describe('a guest that ends without closing anything', () => {
  test(`leaves nothing behind, ${DEATHS} times`, { timeout: 60_000 + KILLED * 1000 }, async () => {
    await using backend = await BackendProcess.start();
    const dieAt = async (point: number): Promise<void> => {
      using guest = RawGuest.connect(backend.socketPath);
      for (const step of steps(guest).slice(0, point)) step();
    };
    // As many as the backend keeps threads for, so that what threads need is there before it is
    // counted.
    const warm = Array.from({ length: 5 }, () => RawGuest.connect(backend.socketPath));
    for (const guest of warm) guest.world();
    for (const guest of warm) guest[Symbol.dispose]();
    await gone(backend);
    for (let point = 0; point <= 7; point++) await dieAt(point);
    await gone(backend);
    const before = backend.openCount;
    for (let death = 0; death < DEATHS - KILLED; death++) await dieAt(Math.floor(Math.random() * 8));
    for (let killed = 0; killed < KILLED; killed++) {
      const child = fork(new URL('./fixtures/guest-main.ts', import.meta.url), [backend.socketPath, 'soft-shm']);
      // At work, in the middle of whatever it does.
      await Promise.race([once(child, 'message'), once(child, 'exit')]);
      const exited = once(child, 'exit');
      child.kill('SIGKILL');
      await exited;
    }
    const startMs = performance.now();
    await gone(backend);
    assert.ok(performance.now() - startMs < FREED_WITHIN_MS);
    const { accepted, dropped } = await backend.status();
    assert.ok(accepted >= DEATHS, `${accepted} guests`);
    assert.equal(dropped, 0);
    // Threads that are kept are at most those that were kept before.
    await until('no descriptor and no mapping left', () => {
      const { fds, mappings } = backend.openCount;
      return fds <= before.fds && mappings <= before.mappings;
    });
  });
});

async function gone(backend: BackendProcess): Promise<void> {
  for (let asked = 0; asked < 2000; asked++) {
    if ((await backend.status()).guests.length === 0) return;
  }
  assert.fail('guests that ended are still there');
}

interface Pair extends Disposable {
  readonly device: Device;
  readonly one: Qp;
  readonly two: Qp;
  readonly cq: Cq;
}

/**
 * Two QPs of one guest, with a send that has no receive, and two receives that nothing is sent to.
 */
function busyPair(socketPath: string): Pair {
  const device = openRemoteDevice('soft-tcp', { socketPath });
  const pd = device.createPd();
  const cq = device.createCq({ channel: device.createChannel() });
  const [one, two] = [pd.createQp({ sendCq: cq }), pd.createQp({ sendCq: cq })];
  const mr = pd.allocate({ sizeBytes: 4096, access: 15 });
  modifyToRts(one, 'RTS', 1, { device, qpNumber: two.number, psn: 2 });
  modifyToRts(two, 'RTS', 2, { device, qpNumber: one.number, psn: 1 });
  using sends = new SendBatch();
  sends.send(11).sge(mr.lkey, mr.address, 8);
  one.postSend(sends);
  using receives = new ReceiveBatch();
  receives.receive(21).sge(mr.lkey, mr.address, 8);
  receives.receive(22).sge(mr.lkey, mr.address, 8);
  one.postReceive(receives);
  return { device, one, two, cq, [Symbol.dispose]: () => device.close() };
}

describe('a backend that is gone', () => {
  test('flushes what is under way, puts QPs into ERR, and makes calls fail', async () => {
    await using backend = await BackendProcess.start();
    using pair = busyPair(backend.socketPath);
    const { device, one, two, cq } = pair;
    let isGone = false;
    device.events.on('deviceGone', () => {
      isGone = true;
    });
    await backend.kill();
    const flushed = await drain(cq, 3);
    assert.deepEqual(
      flushed.map(({ wrId, status }) => `${wrId}:${status}`),
      ['11:WR_FLUSH_ERR', '21:WR_FLUSH_ERR', '22:WR_FLUSH_ERR'],
    );
    assert.equal(isGone, true);
    assert.deepEqual([one.state, two.state], ['ERR', 'ERR']);
    const code = { code: 'MILLRACE_ERR_BACKEND_GONE' };
    assert.throws(() => device.createPd(), code);
    assert.throws(() => device.ports, code);
    using sends = new SendBatch();
    sends.send(12);
    assert.equal(two.postSend(sends), 1);
    assert.deepEqual(
      (await drain(cq, 1)).map(({ wrId, status }) => `${wrId}:${status}`),
      ['12:WR_FLUSH_ERR'],
    );
    // Closing does not throw.
    one.close();
  });

  test('wakes a thread that sleeps on a channel', async () => {
    await using backend = await BackendProcess.start();
    using pair = busyPair(backend.socketPath);
    const { cq } = pair;
    const channel = cq.channel;
    assert.ok(channel !== undefined);
    cq.arm();
    using poller = Poller.create();
    poller.add(channel.fd, pollEvents.in, 1);
    await backend.kill();
    assert.equal(poller.wait(5e9), 1);
    await until('the event', () => channel.take().includes(cq));
  });

  test('has another error code than one that never ran', () => {
    assert.throws(() => openRemoteDevice('soft-shm', { socketPath: '/nowhere/backend.sock' }), {
      code: 'MILLRACE_ERR_NOT_RUNNING',
    });
  });
});
