import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { describe, test } from 'node:test';
import { MillraceError, UsageError } from '../../errors.ts';
import { VortexError } from '../stream/failure.ts';
import { openReceiver, openSender, type Sender, type SenderOptions } from './index.ts';

const small = { blockBytes: 65_536, poolBlocks: 4, hugePages: 'never' } as const;

/** A sender that listens, and peers that dial it. */
class WaitingSender implements AsyncDisposable {
  readonly refusals: string[] = [];
  readonly port: Promise<number>;
  readonly opened: Promise<Sender>;
  readonly #abort = new AbortController();
  #onRefusal = (): void => {};

  constructor(options: SenderOptions = {}) {
    const listening = Promise.withResolvers<number>();
    this.port = listening.promise;
    this.opened = openSender({ host: '127.0.0.1', port: 0 }, 1000, {
      ...small,
      signal: this.#abort.signal,
      onListening: listening.resolve,
      onRefused: (reason) => {
        this.refusals.push(reason);
        this.#onRefusal();
      },
      ...options,
    });
    this.opened.catch(() => {});
  }

  async refusal(count = 1): Promise<string> {
    while (this.refusals.length < count) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#onRefusal = resolve;
      await promise;
    }
    return this.refusals[count - 1] ?? '';
  }

  async dial(...lines: readonly string[]): Promise<string> {
    const socket = connect(await this.port, '127.0.0.1');
    socket.on('error', () => {});
    for (const line of lines) socket.write(line, 'latin1');
    let said = '';
    for await (const chunk of socket) said += String(chunk);
    return said;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#abort.abort();
    await this.opened.then(
      (sender) => sender.close(),
      () => {},
    );
  }
}

const hello = '{"millrace":"vortex","version":2}\n';

describe('a sender and the peers that dial it', () => {
  test('wrong arguments are refused before anything is started', async () => {
    await assert.rejects(openSender(-1, 1), UsageError);
    await assert.rejects(openSender(0, 1, { timeoutMs: 5 }), UsageError);
    await assert.rejects(openSender(0, 1, { ...small, device: 'soft-pigeon' }), /there is no such device/);
    await assert.rejects(openReceiver('127.0.0.1', 70_000), UsageError);
    await assert.rejects(openSender(0, 1, { signal: AbortSignal.abort() }), { name: 'AbortError' });
  });

  test('unknown peers are told why they are refused, and a receiver is served after them', async () => {
    await using sender = new WaitingSender();
    assert.match(await sender.dial('GET / HTTP/1.1\r\n\r\n'), /"refused".*a line that is not JSON/);
    assert.match(await sender.dial('{"millrace":"control","version":1}\n'), /its protocol is .*control/);
    assert.match(await sender.dial('{"millrace":"vortex","version":9}\n'), /its version is 9; expected 2/);
    assert.match(await sender.dial('x'.repeat(20_000)), /more than 8192 bytes/);
    assert.match(
      await sender.dial(hello, '{"kind":"accept","poolBlocks":4,"queuePairs":[]}\n', '{"kind":"done"}\n'),
      /it sent done, where ready is expected/,
    );
    assert.match(await sender.dial('{"millrace":"vortex","version":2,"wire":"rdma-shm"}\n'), /this sender has tcp/);
    // A data connection that nobody waits for.
    assert.equal(await sender.dial('\xd7'.padEnd(17, 'x')), '');
    const part = connect({ port: await sender.port, host: '127.0.0.1', allowHalfOpen: true });
    part.on('error', () => {});
    part.end('\xd7xx', 'latin1');
    const { promise, resolve } = Promise.withResolvers<void>();
    part.on('close', () => resolve()).resume();
    await promise;
    assert.match(await sender.refusal(6), /a receiver at 127\.0\.0\.1: .*this sender has tcp/);

    await using receiver = await openReceiver('127.0.0.1', await sender.port, small);
    const producer = await sender.opened;
    producer.bytes.fill(7);
    producer.finish();
    assert.ok(receiver.bytes.every((byte) => byte === 7));
    await Promise.all([receiver.done(), producer.done()]);
  });

  test('a peer that stays silent is refused after the timeout', { timeout: 10_000 }, async () => {
    await using sender = new WaitingSender({ timeoutMs: 200 });
    assert.match(await sender.dial(hello), /"refused","reason":"the receiver took too long to answer"/);
  });

  test('aborting the opening ends the sender', async () => {
    const abort = new AbortController();
    const listening = Promise.withResolvers<number>();
    const opened = openSender(0, 1000, { ...small, signal: abort.signal, onListening: listening.resolve });
    const port = await listening.promise;
    abort.abort();
    await assert.rejects(opened, { name: 'AbortError' });
    await assert.rejects(openReceiver('127.0.0.1', port, small), /ECONNREFUSED/);
  });
});

describe('a receiver and the peers that it dials', () => {
  async function dialFake(answer: (socket: Socket) => void, options = {}): Promise<unknown> {
    const server = createServer((socket) => {
      socket.on('error', () => {});
      answer(socket);
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    const port = typeof address === 'object' && address !== null ? address.port : 0;
    try {
      return await openReceiver('127.0.0.1', port, { ...small, ...options }).catch((error: unknown) => error);
    } finally {
      server.close();
    }
  }

  test('a port where nobody listens is a clear error', async () => {
    await assert.rejects(openReceiver('127.0.0.1', 1, small), {
      code: 'MILLRACE_ERR_NOT_RUNNING',
      message: /^receive a stream from 127.0.0.1 port 1: ECONNREFUSED/,
    });
  });

  test('a peer that is no sender, one that hangs up and one that stays silent fail the opening', async () => {
    const garbage = await dialFake((socket) => socket.end('SSH-2.0-OpenSSH\r\n'));
    assert.ok(garbage instanceof VortexError && garbage.code === 'MILLRACE_ERR_VORTEX_PROTOCOL', String(garbage));
    const gone = await dialFake((socket) => socket.destroy());
    assert.ok(gone instanceof VortexError && gone.code === 'MILLRACE_ERR_VORTEX_PEER_DIED', String(gone));
    const silent = await dialFake(() => {}, { timeoutMs: 200 });
    assert.ok(silent instanceof VortexError && silent.code === 'MILLRACE_ERR_VORTEX_TIMED_OUT', String(silent));
  });

  test('an offer that would need too much memory is refused', async () => {
    const offer = {
      kind: 'offer',
      sizeBytes: 1,
      blockBytes: 2 ** 26,
      poolBlocks: 8,
      wire: 'tcp',
      strategy: 'pool',
      token: '0'.repeat(32),
    };
    const error = await dialFake((socket) => socket.write(`${JSON.stringify(offer)}\n`), { maxPoolBytes: 2 ** 24 });
    assert.ok(error instanceof MillraceError && /maxPoolBytes/.test(error.message), String(error));
  });

  test('a sender with another strategy is refused, and is told why', async () => {
    await using sender = new WaitingSender({ device: 'soft-shm', strategy: 'copy' });
    await assert.rejects(
      openReceiver('127.0.0.1', await sender.port, { ...small, strategy: 'pool' }),
      /strategy pool.*copy/,
    );
    assert.match(await sender.refusal(), /strategy pool/);
  });
});
