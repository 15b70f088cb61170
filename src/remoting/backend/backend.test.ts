// The backend for its operator: whom it admits, what it tells about its guests, and that idle
// guests cost nothing.

import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { until } from '../../../test/conformance/wait.ts';
import { MillraceError } from '../../errors.ts';
import { noDescriptors } from '../../native/fixtures/no-descriptors.ts';
import { Socket } from '../../native/index.ts';
import { openRemoteDevice, remoteProvider } from '../../providers/remote/index.ts';
import { messageKinds, receiveMessage, sendMessage } from '../transports/unix/message.ts';
import { Backend } from './backend.ts';
import { BackendProcess } from './fixtures/backend-process.ts';
import type { GuestEventMessage } from './guest-events.ts';

const folder = mkdtempSync(join(tmpdir(), 'millrace-backend-'));
after(() => rmSync(folder, { recursive: true, force: true }));

let sockets = 0;
const socketPath = (): string => join(folder, `${++sockets}.sock`);

/** The answer of a backend in this thread. */
async function register(path: string): Promise<string> {
  using socket = Socket.messages();
  socket.connect({ family: 'unix', path });
  sendMessage(socket, messageKinds.request, 1, []);
  let message = receiveMessage(socket);
  await until('an answer', () => {
    message ??= receiveMessage(socket);
    return message !== undefined;
  });
  for (const fd of message?.fds ?? []) fd.close();
  return message?.kind === messageKinds.refusal ? message.text : 'welcome';
}

describe('a backend', () => {
  test('refuses limits that make no sense, and a socket that is in use', async () => {
    assert.throws(() => Backend.start({ socketPath: socketPath(), limits: { qps: -1 } }), /a limit of -1 qps/);
    await using backend = Backend.start({ socketPath: socketPath() });
    assert.throws(() => Backend.start({ socketPath: backend.socketPath }), /one is running there already/);
  });

  test('replaces the socket of a backend that was killed, and leaves none when it is closed', async () => {
    const path = socketPath();
    {
      using dead = Socket.messages();
      dead.bind({ family: 'unix', path });
    }
    const backend = Backend.start({ socketPath: path });
    assert.equal(statSync(path).mode & 0o777, 0o600);
    await backend.close();
    await backend.close();
    assert.equal(statSync(path, { throwIfNoEntry: false }), undefined);
  });

  test('without descriptors accepts nobody, does not spin, and goes on when there are some again', async () => {
    await using backend = await BackendProcess.start();
    const cpuMs = (): number => {
      const [user = 0, system = 0] = readFileSync(`/proc/${backend.pid}/stat`, 'utf8')
        .split(' ')
        .slice(13, 15)
        .map(Number);
      return (user + system) * 10;
    };
    const waiting = Array.from({ length: 3 }, () => Socket.messages());
    {
      await using _ = await noDescriptors(backend.pid);
      for (const socket of waiting) socket.connect({ family: 'unix', path: backend.socketPath });
      const before = cpuMs();
      await sleep(500);
      assert.ok(cpuMs() - before < 250, `${cpuMs() - before} ms of processor time in 500 ms`);
      assert.equal((await backend.status()).accepted, 0);
    }
    assert.equal(await register(backend.socketPath), 'welcome');
    for (const socket of waiting) socket.close();
  });

  test('admits only users whom its policy names, and only so many', async () => {
    const heard: GuestEventMessage[] = [];
    const hear = (message: unknown): void => void heard.push(message as GuestEventMessage);
    subscribe('millrace:guest', hear);
    await using strict = Backend.start({ socketPath: socketPath(), uids: [4711], gids: [] });
    assert.match(await register(strict.socketPath), /uid \d+, gid \d+ are not allowed/);
    await using full = Backend.start({ socketPath: socketPath(), maxGuests: 0 });
    assert.match(await register(full.socketPath), /which is its limit/);
    assert.equal((await full.status()).refused, 1);
    assert.deepEqual(
      heard.map(({ what }) => what),
      ['refused', 'refused'],
    );
    unsubscribe('millrace:guest', hear);
  });

  test('starts no thread for a peer that sends nothing or no valid message', async () => {
    await using backend = Backend.start({ socketPath: socketPath() });
    for (let times = 0; times < 200; times++) {
      const socket = Socket.messages();
      socket.connect({ family: 'unix', path: backend.socketPath });
      if (times % 2 === 0) sendMessage(socket, 77, 0, []);
      if (times % 3 === 0) socket.close();
    }
    // A stream where messages are expected does not even connect.
    const stream = connect(backend.socketPath);
    await once(stream, 'error');
    assert.equal(await register(backend.socketPath), 'welcome');
    const { accepted, refused } = await backend.status();
    assert.deepEqual([accepted, refused], [1, 0]);
  });

  test('tells about its guests: what they have, what they do, and that idle ones do nothing', async () => {
    await using backend = await BackendProcess.start();
    using device = openRemoteDevice('soft-shm', { socketPath: backend.socketPath, label: 'the one' });
    const pd = device.createPd();
    pd.allocate({ sizeBytes: 8192 });
    device.createCq({ entries: 16 });
    const find = async () => (await backend.status()).guests.find(({ label }) => label === 'the one');
    const before = await find();
    assert.ok(before !== undefined);
    assert.deepEqual([before.used.pds, before.used.regions, before.used.cqs, before.used.qps], [1, 1, 1, 0]);
    assert.match(before.peer, new RegExp(`pid ${process.pid} `));
    assert.ok(before.counts.calls >= 5);
    // Long enough that a thread which spins would have taken thousands of turns; the status request
    // wakes it once.
    await new Promise((resolve) => setTimeout(resolve, 300));
    const afterwards = await find();
    assert.ok(afterwards !== undefined);
    assert.ok(afterwards.turns - before.turns < 100, `${afterwards.turns - before.turns} turns`);
    assert.equal(afterwards.counts.calls, before.counts.calls);
  });

  test('is found by MILLRACE_BACKEND, and has its devices first', async () => {
    await using backend = await BackendProcess.start();
    assert.deepEqual(remoteProvider().listDevices(), []);
    process.env.MILLRACE_BACKEND = backend.socketPath;
    try {
      const provider = remoteProvider();
      assert.deepEqual(
        provider.listDevices().map(({ name, provider: from, transport }) => [name, from, transport]),
        [
          ['soft-shm', 'remote', 'shm'],
          ['soft-tcp', 'remote', 'tcp'],
        ],
      );
      const device = provider.openDevice('soft-tcp');
      assert.equal(device.info.provider, 'remote');
      device.close();
      assert.throws(
        () => provider.openDevice('soft-roce'),
        (error) => error instanceof MillraceError,
      );
    } finally {
      delete process.env.MILLRACE_BACKEND;
    }
  });
});
