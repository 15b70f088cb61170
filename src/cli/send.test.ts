import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { basename, join } from 'node:path';
import { PassThrough, Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { after, describe, test } from 'node:test';
import { openFileSource } from '../vortex/files/index.ts';
import { Part } from '../vortex/files/part.ts';
import { type Outcome, runCaptured } from './fixtures/captured-world.ts';
import type { World } from './world.ts';

/** In memory: waiting for a disk proves nothing here. */
const folder = mkdtempSync('/dev/shm/millrace-send-test-');
after(() => rmSync(folder, { recursive: true, force: true }));
const KIB = 1024;
const MIB = 1024 * KIB;
let count = 0;

function newFile(bytes?: Uint8Array): string {
  const path = join(folder, `file-${count++}`);
  if (bytes !== undefined) writeFileSync(path, bytes);
  return path;
}

const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

interface Sending {
  readonly where: string;
  readonly outcome: Promise<Outcome>;
  readonly said: () => string;
}

/** A sender in this process that waits for its receiver. */
async function startSend(args: readonly string[], overrides: Partial<World> = {}): Promise<Sending> {
  const stderr = new PassThrough();
  const outcome = runCaptured(['send', ...args, '--listen', '127.0.0.1:0'], { stderr, ...overrides });
  let said = '';
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  stderr.on('data', (chunk: Buffer) => {
    said += chunk;
    const where = /waits for a receiver on (\S+)/.exec(said)?.[1];
    if (where !== undefined) resolve(where);
  });
  void outcome.then(() => reject(new Error(`the sender ended: ${said}`)));
  return { where: await promise, outcome, said: () => said };
}

describe('send and recv: wrong use', () => {
  test('both explain themselves, with examples', async () => {
    for (const name of ['send', 'recv']) {
      const { code, stdout } = await runCaptured([name, '--help']);
      assert.equal(code, 0);
      assert.match(stdout, new RegExp(`Usage: millrace ${name} .*Examples:\n  millrace ${name} `, 's'));
    }
  });

  test('nonsense is a usage error, before anybody waits', async () => {
    const file = newFile(new Uint8Array(1));
    for (const [args, message] of [
      [['send'], /missing required argument 'file'/],
      [['send', folder], /it is a folder \(tar c/],
      [['send', join(folder, 'none')], /open .*none: ENOENT \(there is no such file or folder\)/],
      [['send', file, '--listen', 'a b'], /is no address/],
      [['send', file, '--block', '100K'], /a power of two from 64K to 64M/],
      [['send', file, '--transport', 'soft-shn'], /soft-shn/],
      [['send', file, '--strategy', 'best'], /Allowed choices are pool, register, copy/],
      [['send', file, '--tls-ca', 'x'], /give all three/],
      [['recv', ':1'], /there is no host/],
      [['recv', '127.0.0.1:1', file], /it exists \(--force replaces it\)/],
      [['recv', '127.0.0.1:1', '-', '--json'], /mixed up/],
      [['recv', '127.0.0.1', '--timeout', 'x'], /a number of seconds/],
      [['recv', '127.0.0.1', '--timeout', '0'], /a number of seconds from 0.1/],
    ] as const) {
      const { code, stdout, stderr } = await runCaptured(args);
      assert.equal(code, 2, `${args.join(' ')}: ${stderr}`);
      assert.match(stderr, message);
      assert.equal(stdout, '');
    }
  });

  test('a sender that is not there is one clear line, and its own exit code', async () => {
    const { code, stderr } = await runCaptured(['recv', '127.0.0.1:1', newFile()]);
    assert.equal(code, 3);
    assert.match(stderr, /^millrace: connect to the sender at 127.0.0.1:1: ECONNREFUSED \(nobody sends there, .*\)\n$/);
  });
});

describe('send and recv', () => {
  test('files of 0, 1 and many bytes arrive, and nothing else is left', async () => {
    for (const sizeBytes of [0, 1, 3 * MIB + 17]) {
      const bytes = randomBytes(sizeBytes);
      const { where, outcome } = await startSend([newFile(bytes), '--block', '64K']);
      const target = newFile();
      const received = await runCaptured(['recv', where, target, '--json']);
      assert.equal(received.code, 0, received.stderr);
      assert.equal(received.stderr, '');
      const document = JSON.parse(received.stdout);
      assert.deepEqual(
        [document.v, document.role, document.path, document.sizeBytes, document.sha256],
        [1, 'receiving', target, sizeBytes, sha256(bytes)],
      );
      assert.equal((await outcome).code, 0);
      assert.ok(readFileSync(target).equals(bytes));
      assert.deepEqual(
        readdirSync(folder).filter((name) => name.startsWith(`${basename(target)}.`)),
        [],
      );
    }
  });

  test('into a folder it gets the name that it has at the sender, and a plain line tells', async () => {
    const bytes = randomBytes(1000);
    const file = newFile(bytes);
    const { where, outcome, said } = await startSend([file]);
    const into = newFile();
    mkdirSync(into);
    const received = await runCaptured(['recv', where, into]);
    assert.match(received.stderr, new RegExp(`^received ${into}/${basename(file)}: 0?.*sha256 ${sha256(bytes)}\n$`));
    assert.ok(readFileSync(join(into, basename(file))).equals(bytes));
    assert.equal((await outcome).code, 0);
    assert.match(said(), new RegExp(`sent to 127.0.0.1: .*sha256 ${sha256(bytes)}\n$`));
  });

  test('a pipe at both ends', async () => {
    for (const sizeBytes of [256 * KIB, 2 * MIB + 1]) {
      const bytes = randomBytes(sizeBytes);
      const chunks = [bytes.subarray(0, 5), bytes.subarray(5)].filter(({ length }) => length > 0);
      const { where, outcome } = await startSend(['-'], { stdin: Readable.from(chunks) });
      const stdout = new PassThrough();
      const [received, got] = await Promise.all([
        runCaptured(['recv', where, '-', '--quiet'], { stdout }).finally(() => stdout.end()),
        buffer(stdout),
      ]);
      assert.deepEqual([received.code, received.stderr], [0, '']);
      assert.ok(got.equals(bytes));
      assert.equal((await outcome).code, 0);
    }
  });

  test('a pipe into a file needs a name, and then has one', async () => {
    const bytes = randomBytes(300 * KIB);
    const nameless = await startSend(['-'], { stdin: Readable.from([bytes]) });
    const refused = await runCaptured(['recv', nameless.where]);
    assert.equal(refused.code, 2);
    assert.match(refused.stderr, /the sender sends a pipe, which has no name/);
    // A pipe cannot be sent again.
    assert.equal((await nameless.outcome).code, 1);
    const { where, outcome } = await startSend(['-'], { stdin: Readable.from([bytes]) });
    const target = newFile();
    assert.equal((await runCaptured(['recv', where, target])).code, 0);
    assert.equal((await outcome).code, 0);
    assert.ok(readFileSync(target).equals(bytes));
  });

  test('a part that is all there already only gets its name', async () => {
    const bytes = randomBytes(100 * KIB);
    const file = newFile(bytes);
    const target = newFile();
    {
      await using source = await openFileSource(file);
      await using part = await Part.open({ target, offer: source.offer, force: false });
      await part.write(bytes, 0);
    }
    const { where, outcome } = await startSend([file]);
    const received = await runCaptured(['recv', where, target]);
    assert.equal(received.code, 0, received.stderr);
    assert.match(
      received.stderr,
      /100 KiB were received before; checking them\n.*100 KiB \(100 KiB of it were received before\)/,
    );
    assert.equal((await outcome).code, 0);
    assert.ok(readFileSync(target).equals(bytes));
  });

  test('over RDMA, with a strategy that the sender chooses', async () => {
    const bytes = randomBytes(MIB + 1);
    const flags = ['--transport', 'soft-shm', '--strategy', 'copy', '--block', '64K'];
    const { where, outcome } = await startSend([newFile(bytes), ...flags]);
    const target = newFile();
    const { code, stderr } = await runCaptured(['recv', where, target]);
    assert.equal(code, 0, stderr);
    assert.equal((await outcome).code, 0);
    assert.ok(readFileSync(target).equals(bytes));
  });

  test('a receiver that wants something else is told so, and another one gets the file', async () => {
    const { where, outcome, said } = await startSend([newFile(new Uint8Array(9))]);
    const target = newFile();
    const wrong = await runCaptured(['recv', where, target, '--transport', 'soft-shm']);
    assert.notEqual(wrong.code, 0);
    assert.match(wrong.stderr, /wants the wire rdma-shm, and this sender has tcp/);
    assert.equal((await runCaptured(['recv', where, target, '--wait', '5'])).code, 0);
    assert.equal((await outcome).code, 0);
    assert.match(said(), /the receiver gave up: .*; waiting up to 60 s for the other side/);
  });

  test('unknown peers do not disturb a sender', async () => {
    const bytes = randomBytes(100);
    const { where, outcome, said } = await startSend([newFile(bytes)]);
    const port = Number(where.split(':')[1]);
    for (const nonsense of ['GET / HTTP/1.1\r\n\r\n', '{"millrace":"files","version":9}\n', '']) {
      const socket = connect(port, '127.0.0.1');
      socket.on('error', () => {});
      socket.end(nonsense);
      socket.resume();
      await once(socket, 'close');
    }
    const target = newFile();
    assert.equal((await runCaptured(['recv', where, target])).code, 0);
    assert.equal((await outcome).code, 0);
    assert.match(said(), /a receiver was refused: .*its version is 9; expected 2/);
  });

  test('Ctrl-C while it waits, and while a pipe says nothing: as interrupted, and the other side hears of it', async () => {
    const idle = new AbortController();
    const waiting = await startSend([newFile(new Uint8Array(1))], { signal: idle.signal });
    idle.abort(new DOMException('stopped by SIGINT', 'AbortError'));
    assert.equal((await waiting.outcome).code, 130);

    const busy = new AbortController();
    const stdin = new PassThrough();
    stdin.write('some bytes');
    const { where, outcome } = await startSend(['-'], { signal: busy.signal, stdin });
    const target = newFile();
    const receiving = runCaptured(['recv', where, target]);
    // The pipe is read only once the stream is open.
    while (stdin.readableLength > 0) await new Promise((resolve) => setImmediate(resolve));
    busy.abort(new DOMException('stopped by SIGINT', 'AbortError'));
    assert.equal((await outcome).code, 130);
    const { code, stderr } = await receiving;
    assert.deepEqual([code, stderr], [1, 'millrace: the sender gave up: it was stopped\n']);
    assert.ok(!existsSync(target));
  });
});
