import assert from 'node:assert/strict';
import { closeSync, openSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { EventFd, Poller, pollEvents, SharedMemory, Socket } from '../../../native/index.ts';
import { BackendProcess } from '../../backend/fixtures/backend-process.ts';
import { awaitMessage, connectToBackend } from '../unix/guest-transport.ts';
import { messageKinds, sendMessage } from '../unix/message.ts';
import { encodeFrame } from './port-frames.ts';
import { registerMachine } from './registration.ts';
import { closeEnds, QemuWiring } from './wiring.ts';

const small = { sizeBytes: 1 << 20, ports: 2 };

describe('a virtual machine that registers with a backend', { timeout: 30_000 }, () => {
  let backend: BackendProcess;
  before(async () => {
    backend = await BackendProcess.start({ maxGuests: 1 });
  });
  after(() => backend[Symbol.asyncDispose]());

  /** The backend's answer to a machine of these descriptors. */
  function answerTo(name: string, count: number, fds: readonly number[]): string {
    using socket = connectToBackend(backend.socketPath);
    sendMessage(socket, messageKinds.machine, count, fds, name);
    const answer = awaitMessage(socket, 'test');
    assert.equal(answer.kind, messageKinds.refusal);
    return answer.text;
  }

  test('with a bad name, other numbers of ports, or memory that can be taken away is refused, and the backend goes on', async () => {
    using wiring = new QemuWiring(small);
    const { memory, monitor, ports } = wiring.ends;
    const fds = [memory.fd, monitor.fd, ...ports.map(({ fd }) => fd)];
    assert.match(answerTo('no\nname', 2, fds), /invalid name of a virtual machine/);
    assert.match(answerTo('a', 3, fds), /3 ports and 4 descriptors/);
    assert.match(answerTo('a', 0, []), /0 ports and 0 descriptors/);
    assert.match(answerTo('a', 2, [ports[0].fd, ...fds.slice(1)]), /./);
    const file = openSync(import.meta.filename, 'r');
    assert.match(answerTo('a', 2, [file, ...fds.slice(1)]), /not sealed against shrinking/);
    // Not even a socket.
    assert.match(answerTo('a', 2, [memory.fd, file, ports[0].fd, ports[1].fd]), /./);
    assert.match(answerTo('a', 2, [memory.fd, monitor.fd, ports[0].fd, file]), /./);
    closeSync(file);
    using tiny = SharedMemory.create({ sizeBytes: 65_536 });
    assert.match(answerTo('a', 2, [tiny.fd, ...fds.slice(1)]), /share 65536 bytes among 2 ports/);
    assert.deepEqual((await backend.status()).guests, []);
    closeEnds(wiring.ends);
  });

  test('has its programs served, up to the limit, until it ends', async () => {
    using wiring = new QemuWiring(small);
    registerMachine(backend.socketPath, 'vm-1', wiring.ends);
    closeEnds(wiring.ends);
    const ports = wiring.sharing.ports.map(({ fd }) => Socket.duplicateOf(fd));
    assert.equal(await talk(ports[0], 'hello', 5), 'MRGW');
    const [program] = (await backend.status()).guests;
    assert.equal(program?.peer, 'port 0 of guest vm-1');
    // The backend takes one guest only.
    assert.equal(await talk(ports[1], 'hello', 6), 'MRGE');
    // QEMU ends: its ends of everything close.
    for (const port of ports) port.close();
    wiring.close();
    while ((await backend.status()).guests.length > 0);
  });

  test('that is no machine at all cannot make the backend wait', async () => {
    using wiring = new QemuWiring(small);
    using event = EventFd.create();
    const { memory, monitor } = wiring.ends;
    answerOrNot(backend.socketPath, [memory.fd, monitor.fd, event.fd, event.fd]);
    closeEnds(wiring.ends);
    wiring.close();
    assert.deepEqual((await backend.status()).guests, []);
  });
});

/** Says it and waits for the kind of the answer. */
async function talk(port: Socket, kind: 'hello', nonce: number): Promise<string> {
  using memory = SharedMemory.create({ sizeBytes: 4096 });
  new Uint8Array(memory.buffer).set(encodeFrame(kind, nonce));
  port.send(memory, 0, 8);
  using poller = Poller.create(1);
  poller.add(port.fd, pollEvents.in, 0);
  while (poller.wait(0) === 0) await new Promise((resolve) => setImmediate(resolve));
  port.receive(memory, 0, 8);
  return Buffer.from(memory.buffer, 0, 4).toString('latin1');
}

/** Whatever it says to that. */
function answerOrNot(socketPath: string, fds: readonly number[]): void {
  using socket = connectToBackend(socketPath);
  sendMessage(socket, messageKinds.machine, 2, fds, 'odd');
  for (const fd of awaitMessage(socket, 'test').fds) fd.close();
}
