// What guests cannot use up: each has limits, all have limits together, and who meets one gets an
// error, while the backend and the other guests go on.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { MillraceError } from '../../errors.ts';
import { Poller, pollEvents, SharedMemory, Socket } from '../../native/index.ts';
import { encodeFrame } from '../transports/qemu/port-frames.ts';
import { registerMachine } from '../transports/qemu/registration.ts';
import { closeEnds, QemuWiring } from '../transports/qemu/wiring.ts';
import { BackendProcess } from './fixtures/backend-process.ts';
import { RawGuest } from './fixtures/raw-guest.ts';
import { HostShare } from './guest/host-share.ts';
import { defaultLimits } from './policy.ts';

const timeout = 60_000;

/** Makes something until it is refused. How often that went well, and the refusal. */
function fill(make: () => void, most = 100_000): { readonly count: number; readonly refusal: MillraceError } {
  for (let count = 0; count < most; count++) {
    try {
      make();
    } catch (error) {
      return { count, refusal: error as MillraceError };
    }
  }
  return assert.fail(`nothing was refused in ${most} times`);
}

/** Of one byte each. */
const allocate = (guest: RawGuest, handles: number[] = []): (() => void) => {
  return () => {
    const results = guest.call('allocate', 1, 0, 0);
    handles.push(results.u32());
    guest.map(results);
  };
};

describe('a share of what all guests may have', () => {
  test('is taken as a whole or not at all, and given back when its holder has ended', () => {
    const all = HostShare.create({ descriptors: 10, mappings: 5 });
    const own = HostShare.nothing();
    const one = new HostShare(all.memory, own);
    const other = new HostShare(all.memory);
    assert.equal(one.take({ descriptors: 6, mappings: 3 }), undefined);
    assert.match(
      other.take({ descriptors: 1, mappings: 3 }) ?? '',
      /^3 more mappings: the guests of this backend have 3 and may have 5 \(raise vm\.max_map_count\)$/,
    );
    assert.match(other.take({ descriptors: 5, mappings: 1 }) ?? '', /^5 more descriptors: .* have 6 and may have 10/);
    assert.deepEqual(all.used, { descriptors: 6, mappings: 3 });
    assert.equal(other.take({ descriptors: 4, mappings: 2 }), undefined);
    // By the main thread, after the thread has ended.
    new HostShare(all.memory, own).clear();
    assert.deepEqual(all.used, { descriptors: 4, mappings: 2 });
    one.clear();
    assert.deepEqual(all.used, { descriptors: 4, mappings: 2 }, 'once');
  });
});

describe('a guest that asks without end', () => {
  test('gets pieces of memory up to its limit, however small they are, and again when it has freed some', {
    timeout,
  }, async () => {
    await using backend = await BackendProcess.start();
    using guest = RawGuest.connect(backend.socketPath);
    using other = RawGuest.connect(backend.socketPath);
    const handles: number[] = [];
    const { count, refusal } = fill(allocate(guest, handles));
    assert.equal(count, defaultLimits.memories);
    assert.equal(refusal.code, 'MILLRACE_ERR_QUOTA');
    assert.match(refusal.message, /^1 more pieces of memory: this guest has 512 and may have 512 .*'memories'/);
    other.world();
    for (const handle of handles.slice(0, 3)) guest.call('free', handle);
    assert.equal(fill(allocate(guest)).count, 3);
    const { guests } = await backend.status();
    assert.equal(guests[0]?.used.memories, count);
  });

  test('gets granted keys up to its limit, and again when it has revoked them or closed the region', {
    timeout,
  }, async () => {
    await using backend = await BackendProcess.start({ limits: { grants: 100 } });
    using guest = RawGuest.connect(backend.socketPath);
    const { mr, qp } = guest.world();
    const keys: number[] = [];
    const grant = (): void => void keys.push(guest.call('grant', mr, qp, 1).u32());
    const { count, refusal } = fill(grant);
    assert.equal(count, 100);
    assert.match(refusal.message, /1 more granted keys: this guest has 100 and may have 100/);
    for (const key of keys.splice(0, 10)) guest.call('revoke', mr, key);
    assert.equal(fill(grant).count, 10);
    guest.call('closeMr', mr);
    const second = guest.world();
    guest.call('grant', second.mr, second.qp, 1);
    assert.equal((await backend.status()).guests[0]?.used.grants, 1);
  });

  test('of descriptors has half of them at most, and others are served and admitted', { timeout }, async () => {
    // Number 6 of the note on trust took the backend down with all guests.
    await using backend = await BackendProcess.start({}, 512);
    using guest = RawGuest.connect(backend.socketPath);
    using other = RawGuest.connect(backend.socketPath);
    const { count, refusal } = fill(allocate(guest));
    assert.match(refusal.message, /^1 more pieces of memory: 1 more descriptors: this guest has 224 and may have 224/);
    assert.equal(count, 224);
    other.connect(other.world());
    assert.ok(backend.openCount.fds < 512);
    using third = RawGuest.connect(backend.socketPath);
    third.connect(third.world());
    const { host } = await backend.status();
    assert.equal(host.descriptors.limit, 448);
    assert.ok(host.descriptors.used > 224 && host.descriptors.used <= 448, JSON.stringify(host));
  });
});

test('guests that come without end are refused with the reason when they would use up the process, and served when others have gone', {
  timeout,
}, async () => {
  await using backend = await BackendProcess.start({ maxGuests: 1000, host: { descriptors: 60 } });
  const guests: RawGuest[] = [];
  const { refusal } = fill(() => void guests.push(RawGuest.connect(backend.socketPath)), 100);
  assert.match(
    refusal.message,
    /15 more descriptors: the guests of this backend have 60 and may have 60 \(raise Limit/,
  );
  assert.equal(guests.length, 4);
  for (const guest of guests)
    assert.throws(() => guest.world(), /MILLRACE_ERR_QUOTA|the guests of this backend have 60/);
  for (const guest of guests.splice(0)) guest[Symbol.dispose]();
  // Threads that are kept for the next guests have the rest.
  while ((await backend.status()).host.descriptors.used > 30);
  using again = RawGuest.connect(backend.socketPath);
  again.call('openDevice', 'soft-shm');
});

test('programs of a virtual machine that come too often wait for their turn', { timeout }, async () => {
  await using backend = await BackendProcess.start({ registrationsPerSecond: 1 });
  using wiring = new QemuWiring({ sizeBytes: 1 << 20, ports: 1 });
  registerMachine(backend.socketPath, 'vm-1', wiring.ends);
  closeEnds(wiring.ends);
  using port = Socket.duplicateOf(wiring.sharing.ports[0]?.fd ?? -1);
  // A full account is 4, and one more is earned in a second.
  const startMs = performance.now();
  const answers: string[] = [];
  for (let nonce = 1; answers.length < 5; nonce++) answers.push(await welcomed(port, nonce));
  assert.deepEqual(answers, ['welcome', 'welcome', 'welcome', 'welcome', 'welcome']);
  const tookMs = performance.now() - startMs;
  assert.ok(tookMs > 950, `5 programs in ${tookMs} ms`);
  const { accepted } = await backend.status();
  assert.equal(accepted, 5);
});

/** A program that says hello, and goes when it is served. */
async function welcomed(port: Socket, nonce: number): Promise<string> {
  using memory = SharedMemory.create({ sizeBytes: 4096 });
  const bytes = new Uint8Array(memory.buffer);
  const send = (kind: 'hello' | 'end'): void => {
    bytes.set(encodeFrame(kind, nonce));
    port.send(memory, 0, 8);
  };
  using poller = Poller.create(1);
  poller.add(port.fd, pollEvents.in, 0);
  const hear = async (repeat = (): void => {}): Promise<string> => {
    while (poller.wait(0) === 0) {
      repeat();
      await sleep(10);
    }
    port.receive(memory, 0, 8);
    return Buffer.from(memory.buffer, 0, 4).toString('latin1');
  };
  // As programs do: one that comes while the thread of the program before ends is not heard.
  const answer = await hear(() => send('hello'));
  if (answer !== 'MRGW') return answer;
  send('end');
  assert.equal(await hear(), 'MRGE');
  return 'welcome';
}
