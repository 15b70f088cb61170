// Files between two processes when things go wrong: killed, stopped and interrupted sides, full
// disks, files that change.

import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  utimesSync,
  watch,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, describe, test } from 'node:test';
import { Lab } from '../../../src/lab/index.ts';
import { makeLabCertificates } from '../../../src/tls/lab-ca.ts';

const millrace = join(import.meta.dirname, '../../../millrace');
const MIB = 1024 * 1024;
/** In memory: waiting for a disk proves nothing here. */
const folder = mkdtempSync('/dev/shm/millrace-send-recv-');
after(() => rmSync(folder, { recursive: true, force: true }));
const bytes = randomBytes(96 * MIB);
const sum = createHash('sha256').update(bytes).digest('hex');
/** Small blocks: there is a middle to break in. */
const small = ['--block', '64K'];
/** Of a test for one process. */
const PATIENCE_MS = 40_000;
let count = 0;

function newPath(): string {
  return join(folder, `file-${count++}`);
}

function newFile(content: Uint8Array = bytes): string {
  const path = newPath();
  writeFileSync(path, content);
  return path;
}

/** For transfers that leave it as it is. */
const source = newFile();

const partOf = (target: string): string => `${target}.millrace-part`;

type Start = (args: readonly string[]) => ChildProcess;
const here: Start = (args) => spawn(millrace, args, { stdio: ['ignore', 'pipe', 'pipe'] });

/** A side in a process of its own, and what it says. */
class Side implements Disposable {
  readonly child: ChildProcess;
  readonly code: Promise<number | null>;
  readonly lines: string[] = [];
  #wake = Promise.withResolvers<void>();

  constructor(args: readonly string[], start: Start = here) {
    this.child = start(args);
    const timer = setTimeout(() => {
      this.lines.push('it took too long, and the test has killed it');
      this.child.kill('SIGKILL');
    }, PATIENCE_MS);
    // Everything it said is read by then.
    this.code = once(this.child, 'close').then(([status]) => {
      clearTimeout(timer);
      return status as number | null;
    });
    assert.ok(this.child.stderr !== null);
    createInterface({ input: this.child.stderr }).on('line', (line) => {
      this.lines.push(line);
      this.#wake.resolve();
      this.#wake = Promise.withResolvers();
    });
  }

  get said(): string {
    return this.lines.join('\n');
  }

  /** The line that matches, when it comes. */
  async says(pattern: RegExp): Promise<string> {
    for (;;) {
      const line = this.lines.find((one) => pattern.test(one));
      if (line !== undefined) return line;
      const isOver = await Promise.race([this.#wake.promise, this.code.then(() => true)]);
      assert.ok(isOver !== true || this.lines.some((one) => pattern.test(one)), `it ended, and said: ${this.said}`);
    }
  }

  [Symbol.dispose](): void {
    this.child.kill('SIGKILL');
  }
}

async function startSend(args: readonly string[], start?: Start, host = '127.0.0.1:0'): Promise<[Side, string]> {
  const side = new Side(['send', ...args, '--listen', host], start);
  const line = await side.says(/waits for a receiver on/);
  return [side, line.split(' ').at(-1) ?? ''];
}

function recv(where: string, target: string, ...more: readonly string[]): Side {
  return new Side(['recv', where, target, ...more]);
}

/** When so much of a file has come. */
async function grown(target: string, sizeBytes: number): Promise<void> {
  const isThere = (): boolean => (statSync(partOf(target), { throwIfNoEntry: false })?.size ?? 0) >= sizeBytes;
  const { promise, resolve } = Promise.withResolvers<void>();
  const watcher = watch(dirname(target), () => isThere() && resolve());
  if (isThere()) resolve();
  await promise;
  watcher.close();
}

/** The file is there, right, and alone; it is not needed any more. */
function checkFile(target: string, content: Uint8Array = bytes): void {
  assert.ok(readFileSync(target).equals(content));
  const beside = readdirSync(dirname(target)).filter((name) => name.startsWith(`${basename(target)}.`));
  assert.deepEqual(beside, []);
  rmSync(target);
}

/** Nothing has the final name; a part waits. */
function checkPart(target: string): number {
  assert.ok(!existsSync(target));
  return statSync(partOf(target)).size;
}

describe('a transfer that breaks goes on where it broke, with the right sum', () => {
  test('after the receiver was killed, without a new sender', async () => {
    const target = newPath();
    const [sender, where] = await startSend([source, ...small]);
    using _sender = sender;
    const first = recv(where, target);
    await grown(target, MIB);
    first.child.kill('SIGKILL');
    await first.code;
    const left = checkPart(target);
    assert.match(await sender.says(/waiting up to 60 s/), /has gone|ended|lost|closed/);
    const second = recv(where, target, '--json');
    const document = JSON.parse((await second.child.stdout?.toArray())?.join('') ?? '');
    assert.equal(await second.code, 0, second.said);
    assert.deepEqual([document.sha256, document.resumedBytes, left >= MIB], [sum, left, true]);
    assert.equal(await sender.code, 0, sender.said);
    checkFile(target);
  });

  test('after the sender was killed: a typed error within 2 s, and another sender comes', async () => {
    const target = newPath();
    const [first, where] = await startSend([source, ...small]);
    using receiver = recv(where, target, '--wait', '30');
    await grown(target, MIB);
    const killedMs = performance.now();
    first.child.kill('SIGKILL');
    const line = await receiver.says(/waiting up to 30 s/);
    assert.ok(performance.now() - killedMs < 2000);
    assert.match(line, /the process at the other end has ended|closed the connection/);
    assert.ok(checkPart(target) >= MIB);
    const [second] = await startSend([source, ...small], here, where);
    assert.equal(await receiver.code, 0, receiver.said);
    assert.match(receiver.said, /were received before; checking them/);
    assert.match(receiver.said, new RegExp(`of it were received before.* sha256 ${sum}`));
    assert.equal(await second.code, 0);
    checkFile(target);
  });

  test('not while the receiver is stopped: the sender gives it up after its time, and the part stays', async () => {
    const target = newPath();
    const [sender, where] = await startSend([source, ...small, '--timeout', '1', '--wait', '0']);
    using receiver = recv(where, target);
    await grown(target, MIB);
    receiver.child.kill('SIGSTOP');
    assert.equal(await sender.code, 1);
    assert.match(sender.said, /^millrace: .*silent for 1000 ms/m);
    receiver.child.kill('SIGCONT');
    assert.equal(await receiver.code, 1);
    assert.ok(checkPart(target) >= MIB);
  });

  test('after the disk was full: a typed error at both ends within 2 s, and room is made', async () => {
    const disk = newPath();
    mkdirSync(disk);
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=8m', 'millrace-test', disk]);
    try {
      const target = join(disk, 'file');
      const [sender, where] = await startSend([source, ...small]);
      using _sender = sender;
      const first = recv(where, target);
      await first.says(/ENOSPC/);
      const fullMs = performance.now();
      assert.equal(await first.code, 1);
      assert.match(
        first.said,
        /^millrace: write .*millrace-part: ENOSPC \(the disk is full; make room and run the same/m,
      );
      await sender.says(/^the receiver gave up: write .*ENOSPC.*; waiting up to 60 s/);
      assert.ok(performance.now() - fullMs < 2000);
      assert.ok(checkPart(target) > 6 * MIB);
      execFileSync('mount', ['-o', 'remount,size=256m', disk]);
      const second = recv(where, target);
      assert.equal(await second.code, 0, second.said);
      assert.match(second.said, /of it were received before/);
      assert.equal(await sender.code, 0);
      checkFile(target);
    } finally {
      execFileSync('umount', [disk]);
    }
  });
});

describe('a file that changes', () => {
  /** Breaks a transfer in the middle; the sender waits for the receiver. */
  async function broken(file: string, signal: NodeJS.Signals): Promise<[Side, where: string, target: string]> {
    const target = newPath();
    const [sender, where] = await startSend([file, ...small]);
    const receiver = recv(where, target);
    await grown(target, MIB);
    receiver.child.kill(signal);
    const line = await sender.says(/waiting up to 60 s/);
    if (signal === 'SIGINT') {
      assert.match(line, /^the receiver gave up: it was stopped;/);
      assert.deepEqual([await receiver.code, receiver.said], [130, '']);
    }
    assert.ok(checkPart(target) >= MIB);
    return [sender, where, target];
  }

  test('after Ctrl-C at the receiver is sent afresh, and a line says so', async () => {
    const file = newFile();
    const [sender, where, target] = await broken(file, 'SIGINT');
    using _sender = sender;
    const other = randomBytes(MIB);
    writeFileSync(file, other);
    const receiver = recv(where, target);
    assert.equal(await receiver.code, 0, receiver.said);
    assert.match(receiver.said, /^starting from the beginning: the file at the sender is another one by now/m);
    assert.equal(await sender.code, 0);
    checkFile(target, other);
  });

  test('without looking like it is found out by its bytes', async () => {
    const file = newFile();
    const [sender, where, target] = await broken(file, 'SIGKILL');
    using _sender = sender;
    const { atime, mtime } = statSync(file);
    const other = Buffer.from(bytes);
    other[1000] = (other[1000] ?? 0) ^ 1;
    writeFileSync(file, other);
    utimesSync(file, atime, mtime);
    // To a time that both can have: the part is of a file of that time.
    const note = `${target}.millrace-note`;
    const { mtimeNs } = statSync(file, { bigint: true });
    writeFileSync(note, readFileSync(note, 'utf8').replace(/"modifiedNs":"\d+"/, `"modifiedNs":"${mtimeNs}"`));
    const receiver = recv(where, target);
    assert.equal(await receiver.code, 0, receiver.said);
    assert.match(receiver.said, /^starting from the beginning: what is here is not how the file at the sender begins/m);
    assert.equal(await sender.code, 0, sender.said);
    checkFile(target, other);
  });

  test('while it is sent is an error at both ends', async () => {
    const target = newPath();
    const file = newFile();
    const [sender, where] = await startSend([file, ...small]);
    const receiver = recv(where, target);
    await grown(target, MIB);
    truncateSync(file, 100);
    assert.deepEqual([await sender.code, await receiver.code], [1, 1]);
    assert.match(sender.said, /^millrace: .* has changed while it was sent; send it again/m);
    assert.match(receiver.said, /^millrace: the sender gave up: .*has changed while it was sent/m);
    checkPart(target);
  });
});

test('between two hosts, by IPv6 and with certificates; who has none is sent away', async () => {
  await using lab = await Lab.create({ hosts: ['a', 'b'] });
  const on =
    (name: string): Start =>
    (args) =>
      lab.host(name).spawn(millrace, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  const tlsFolder = newPath();
  mkdirSync(tlsFolder);
  const spec = { openssl: '/usr/bin/openssl', folder: tlsFolder, names: ['a', 'b'], days: 1, caDays: 2 };
  const { ca } = await makeLabCertificates(spec);
  const tls = (own: string, peer: string): readonly string[] => {
    const [cert, key] = ['pem', 'key'].map((ending) => join(tlsFolder, `${own}.${ending}`));
    return `--tls-ca ${ca} --tls-cert ${cert} --tls-key ${key} --peer-name ${peer}`.split(' ');
  };
  const content = bytes.subarray(0, 5 * MIB + 3);
  const [sender, where] = await startSend([newFile(content), ...tls('a', 'b')], on('a'), `[${lab.host('a').ipv6}]:0`);
  using _sender = sender;
  const target = newPath();
  const unknown = new Side(['recv', where, target], on('b'));
  assert.equal(await unknown.code, 1);
  await sender.says(/a receiver was refused/);
  const receiver = new Side(['recv', where, target, ...tls('b', 'a')], on('b'));
  assert.equal(await receiver.code, 0, receiver.said);
  assert.equal(await sender.code, 0, sender.said);
  checkFile(target, content);
});
