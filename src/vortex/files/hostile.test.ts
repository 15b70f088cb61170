import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { MillraceError } from '../../errors.ts';
import { readLine, writeLine } from '../../json-lines/line.ts';
import { openReceiver, openSender } from '../index.ts';
import { receiveFile } from './receive.ts';
import { sendFile } from './send.ts';
import type { FileTransferSettings, News } from './settings.ts';
import { openFileSource } from './source.ts';

const folder = mkdtempSync('/dev/shm/millrace-files-test-');
after(() => rmSync(folder, { recursive: true, force: true }));
const hello = { millrace: 'files', version: 2 };
const zeroes = '0'.repeat(64);
let count = 0;

function common(timeoutMs: number, onNews: (news: News) => void = () => {}): FileTransferSettings {
  return { timeoutMs, waitMs: 0, signal: new AbortController().signal, onNews };
}

/** A sender of lines, and of streams if it likes; what a real receiver makes of it. */
async function receiveFrom(
  talk: (socket: Socket) => Promise<void>,
  timeoutMs = 10_000,
): Promise<{ error: unknown; target: string }> {
  const server = createServer((socket) => {
    socket.on('error', () => {});
    void talk(socket).catch(() => {});
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  const target = join(folder, `received-${count++}`);
  const error = await receiveFile({
    ...common(timeoutMs),
    address: { host: '127.0.0.1', port },
    target,
    force: false,
  }).then(
    () => undefined,
    (reason: unknown) => reason,
  );
  server.close();
  return { error, target };
}

function isCode(error: unknown, code: string): boolean {
  return error instanceof MillraceError && error.code === code;
}

describe('a sender that breaks the protocol', () => {
  const offer = { kind: 'offer', name: 'x', sizeBytes: 10, modifiedNs: '1' };

  test('by what it says: an error, and no file', async () => {
    const lines: readonly (readonly unknown[])[] = [
      [hello],
      ['nonsense'],
      [{ kind: 'offer', name: '../x', sizeBytes: 10, modifiedNs: '1' }],
      [{ kind: 'offer', name: 'x', sizeBytes: -1, modifiedNs: '1' }],
      [offer, { kind: 'sum', sizeBytes: 10, sha256: zeroes }],
      [offer, { kind: 'stream', port: 40_104, startBytes: 5 }],
      [offer, { kind: 'stream', port: 70_000, startBytes: 0 }],
      ['x'.repeat(10_000)],
    ];
    for (const said of lines) {
      const { error, target } = await receiveFrom(async (socket) => {
        for (const line of said) writeLine(socket, line);
      });
      assert.ok(
        isCode(error, 'MILLRACE_ERR_VORTEX_PROTOCOL'),
        `${JSON.stringify(said).slice(0, 80)}: ${String(error)}`,
      );
      assert.ok(!existsSync(target));
    }
  });

  test('by silence, and by hanging up: a typed error in time', async () => {
    const silent = await receiveFrom(async () => {}, 200);
    assert.ok(isCode(silent.error, 'MILLRACE_ERR_VORTEX_TIMED_OUT'), String(silent.error));
    const gone = await receiveFrom(async (socket) => void socket.end());
    assert.ok(isCode(gone.error, 'MILLRACE_ERR_VORTEX_PEER_DIED'), String(gone.error));
  });

  test('by a sum that is not that of its bytes: an error at both ends, and nothing is kept', async () => {
    const answer = Promise.withResolvers<unknown>();
    const { error, target } = await receiveFrom(async (socket) => {
      writeLine(socket, offer);
      await readLine(socket); // hello
      await readLine(socket); // have
      const onListening = (port: number): void => writeLine(socket, { kind: 'stream', port, startBytes: 0 });
      await using stream = await openSender({ host: '127.0.0.1', port: 0 }, 10, { onListening });
      const block = await stream.blocks().next();
      block.bytes.fill(7);
      block.commit();
      stream.finish();
      await stream.done();
      writeLine(socket, { kind: 'sum', sizeBytes: 10, sha256: zeroes });
      answer.resolve(await readLine(socket));
    });
    assert.ok(isCode(error, 'MILLRACE_ERR_FILES_CHECKSUM'), String(error));
    assert.match(
      String(error),
      /the checksum differs: the bytes here have sha256 [0-9a-f]{64}, those of the other side 0{64}/,
    );
    assert.match(JSON.stringify(await answer.promise), /"kind":"failed","code":"MILLRACE_ERR_FILES_CHECKSUM"/);
    const name = target.slice(folder.length + 1);
    assert.deepEqual(
      readdirSync(folder).filter((entry) => entry.startsWith(name)),
      [],
    );
  });
});

describe('a receiver that breaks the protocol', () => {
  const file = join(folder, 'source');
  writeFileSync(file, 'ten bytes.');

  /** What a real sender makes of it. */
  async function sendTo(talk: (socket: Socket) => Promise<void>, timeoutMs = 10_000, waitMs = 0): Promise<unknown> {
    const onNews = (news: News): void => {
      if (news.kind !== 'listening') return;
      const socket = connect(news.port, '127.0.0.1');
      socket.on('error', () => {});
      void talk(socket).catch(() => {});
    };
    const openSource = () => openFileSource(file);
    return sendFile({ ...common(timeoutMs, onNews), waitMs, address: { host: '127.0.0.1', port: 0 }, openSource }).then(
      () => undefined,
      (error: unknown) => error,
    );
  }

  test('by what it says: the attempt fails with a reason', async () => {
    for (const line of [
      { kind: 'have', bytes: 11 },
      { kind: 'have', bytes: -1 },
      { kind: 'kept', sha256: zeroes },
      hello,
    ]) {
      const error = await sendTo(async (socket) => {
        writeLine(socket, hello);
        writeLine(socket, line);
      });
      assert.ok(isCode(error, 'MILLRACE_ERR_VORTEX_PROTOCOL'), `${JSON.stringify(line)}: ${String(error)}`);
    }
  });

  test('by keeping what it never fetched, or other bytes than were sent', async () => {
    const early = await sendTo(async (socket) => {
      for (const line of [hello, { kind: 'have', bytes: 0 }, { kind: 'kept', sha256: zeroes }]) writeLine(socket, line);
    });
    assert.ok(isCode(early, 'MILLRACE_ERR_VORTEX_PROTOCOL'), String(early));
    const wrong = await sendTo(async (socket) => {
      writeLine(socket, hello);
      await readLine(socket); // offer
      writeLine(socket, { kind: 'have', bytes: 0 });
      const { port } = (await readLine(socket)) as { port: number };
      await using receiver = await openReceiver('127.0.0.1', port);
      for await (const block of receiver.blocks()) block.release();
      await receiver.done();
      await readLine(socket); // sum
      writeLine(socket, { kind: 'kept', sha256: zeroes });
    });
    assert.ok(isCode(wrong, 'MILLRACE_ERR_FILES_CHECKSUM'), String(wrong));
  });

  test('bytes that arrived wrong end the sender, which waits for no other attempt', async () => {
    const failed = { kind: 'failed', code: 'MILLRACE_ERR_FILES_CHECKSUM', reason: 'the checksum differs' };
    const error = await sendTo(
      async (socket) => {
        for (const line of [hello, failed]) writeLine(socket, line);
      },
      10_000,
      60_000,
    );
    assert.ok(isCode(error, 'MILLRACE_ERR_FILES_PEER'), String(error));
    assert.match(String(error), /the receiver gave up: the checksum differs/);
  });

  test('by not coming for the stream, or by leaving', async () => {
    const late = await sendTo(async (socket) => {
      for (const line of [hello, { kind: 'have', bytes: 0 }]) writeLine(socket, line);
    }, 500);
    assert.ok(isCode(late, 'MILLRACE_ERR_VORTEX_TIMED_OUT'), String(late));
    const gone = await sendTo(async (socket) => {
      writeLine(socket, hello);
      await readLine(socket);
      socket.end();
    });
    assert.ok(isCode(gone, 'MILLRACE_ERR_VORTEX_PEER_DIED'), String(gone));
  });
});
