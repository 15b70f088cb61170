import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { openReceiver, openSender, type Receiver, type Sender } from './index.ts';

const MIB = 2 ** 20;
const small = { blockBytes: 65_536, poolBlocks: 4, hugePages: 'never' } as const;

/**
 * A stream through a proxy that can cut its connections: the first is the control connection, the
 * second has the data.
 */
class CuttableStream implements AsyncDisposable {
  readonly sender: Sender;
  readonly receiver: Receiver;
  readonly #sockets: readonly Socket[];
  readonly #close: () => void;

  static async open(): Promise<CuttableStream> {
    const listening = Promise.withResolvers<number>();
    const options = { ...small, onListening: listening.resolve };
    const opening = openSender({ host: '127.0.0.1', port: 0 }, 64 * MIB, options);
    const port = await listening.promise;
    const sockets: Socket[] = [];
    const server = createServer((from) => {
      const to = connect(port, '127.0.0.1');
      for (const socket of [from, to]) socket.on('error', () => {});
      from.pipe(to).pipe(from);
      from.on('close', () => to.destroy());
      sockets.push(from);
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    const between = typeof address === 'object' && address !== null ? address.port : 0;
    const [sender, receiver] = await Promise.all([opening, openReceiver('127.0.0.1', between, small)]);
    return new CuttableStream(sender, receiver, sockets, () => server.close());
  }

  private constructor(sender: Sender, receiver: Receiver, sockets: readonly Socket[], close: () => void) {
    this.sender = sender;
    this.receiver = receiver;
    this.#sockets = sockets;
    this.#close = close;
  }

  /** The codes with which both sides fail. */
  async cut(index: number): Promise<readonly unknown[]> {
    const codes = Promise.all(
      [this.sender.done(), this.receiver.done()].map((done) => done.catch((error) => error.code)),
    );
    this.#sockets[index]?.resetAndDestroy();
    return codes;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([this.sender.close(), this.receiver.close()]);
    for (const socket of this.#sockets) socket.destroy();
    this.#close();
  }
}

test('when the control connection is cut, the peer counts as dead', async () => {
  await using stream = await CuttableStream.open();
  assert.deepEqual(await stream.cut(0), Array(2).fill('MILLRACE_ERR_VORTEX_PEER_DIED'));
});

test('when the data connection alone is cut, the stream is cut', async () => {
  await using stream = await CuttableStream.open();
  // Bytes must be in flight: a sender that sends nothing does not see the reset.
  const writable = stream.sender.writable();
  writable.on('error', () => {});
  writable.write(Buffer.alloc(8 * MIB));
  assert.deepEqual(await stream.cut(1), Array(2).fill('MILLRACE_ERR_VORTEX_CUT'));
});

test('a program in a page fault is freed when its engine ends, and both ends fail', async () => {
  const fixture = fileURLToPath(new URL('fixtures/engine-dies.ts', import.meta.url));
  // In a process of its own, because a test that hangs in a page fault could not be timed out.
  const { stdout } = await promisify(execFile)(process.execPath, [fixture], { timeout: 20_000, killSignal: 'SIGKILL' });
  const died = 'MILLRACE_ERR_VORTEX_PEER_DIED';
  assert.deepEqual(JSON.parse(stdout), { byte: 0, received: died, sent: died });
});
