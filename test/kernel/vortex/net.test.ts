// Streams between two hosts: every wire and strategy, peers that die, stop or leave, and nothing
// left behind.

import assert from 'node:assert/strict';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, describe, test } from 'node:test';
import { type Host, Lab } from '../../../src/lab/index.ts';
import { makeLabCertificates } from '../../../src/tls/lab-ca.ts';
import { sweepDeadTests, temporaryRunDir } from '../../../workbench/worlds/lab-runs.ts';
import type { PeerJob, PeerNews } from './peer.ts';

const program = join(import.meta.dirname, 'peer.ts');
const KIB = 1024;
const MIB = 1024 * KIB;
const small = { blockBytes: 64 * KIB, poolBlocks: 4, hugePages: 'never' } as const;

type Job = Omit<PeerJob, 'id' | 'kind'>;

/** A process with ends of streams. */
class Peer implements AsyncDisposable {
  readonly host: Host;
  readonly child: ChildProcess;
  readonly #waiting = new Map<number, (news: PeerNews) => void>();
  readonly #heard = new Map<number, PeerNews[]>();
  #nextId = 1;

  constructor(host: Host, env: NodeJS.ProcessEnv = {}) {
    this.host = host;
    const options = { stdio: ['pipe', 'pipe', 'inherit'], env: { ...process.env, ...env } } as const;
    this.child = host.spawn(process.execPath, [program], { ...options, stdio: [...options.stdio] });
    assert.ok(this.child.stdout);
    this.child.stdin?.on('error', () => {});
    createInterface({ input: this.child.stdout }).on('line', (line) => {
      const news = JSON.parse(line) as PeerNews;
      this.#heard.set(news.id, [...(this.#heard.get(news.id) ?? []), news]);
      this.#waiting.get(news.id)?.(news);
    });
  }

  start(kind: PeerJob['kind'], job: Job): End {
    const id = this.#nextId++;
    this.child.stdin?.write(`${JSON.stringify({ ...job, id, kind })}\n`);
    return new End(this, id);
  }

  /** The next thing that is said of a stream. */
  async next(id: number): Promise<PeerNews> {
    for (;;) {
      const [news, ...rest] = this.#heard.get(id) ?? [];
      this.#heard.set(id, rest);
      if (news !== undefined) return news;
      const { promise, resolve } = Promise.withResolvers<PeerNews>();
      this.#waiting.set(id, resolve);
      await promise;
    }
  }

  async facts(): Promise<PeerNews> {
    return this.start('facts', {}).expect('facts');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const exited = once(this.child, 'exit');
    this.child.kill('SIGKILL');
    await exited;
  }
}

class End {
  readonly #peer: Peer;
  readonly #id: number;

  constructor(peer: Peer, id: number) {
    this.#peer = peer;
    this.#id = id;
  }

  async expect(kind: PeerNews['kind']): Promise<PeerNews> {
    const news = await this.#peer.next(this.#id);
    assert.equal(news.kind, kind, JSON.stringify(news));
    return news;
  }
}

before(sweepDeadTests);
const dir = temporaryRunDir();
const runtimeDir = temporaryRunDir();
const lab = await Lab.create({ runDir: dir.path, hosts: ['a', 'b'] });
// Compiled once, and not by each engine of each process.
const env = { MILLRACE_RUN_DIR: runtimeDir.path, NODE_COMPILE_CACHE: join(runtimeDir.path, 'compiled') };
const [left, right] = [new Peer(lab.host('a'), env), new Peer(lab.host('b'), env)];
after(async () => {
  await left[Symbol.asyncDispose]();
  await right[Symbol.asyncDispose]();
  await lab.close();
  dir[Symbol.dispose]();
  runtimeDir[Symbol.dispose]();
});

interface Ends {
  readonly sender: End;
  readonly receiver: End;
}

async function open(sending: Job, receiving: Job = {}, from = left, to = right): Promise<Ends> {
  const host = from.host.ipv4;
  const sender = from.start('send', { host, ...sending, options: { ...small, ...sending.options } });
  const { port } = await sender.expect('listening');
  assert.ok(port !== undefined);
  const receiver = to.start('receive', { host, port, ...receiving, options: { ...small, ...receiving.options } });
  await Promise.all([sender.expect('open'), receiver.expect('open')]);
  return { sender, receiver };
}

async function carry(sending: Job, receiving: Job = {}): Promise<void> {
  const { sender, receiver } = await open(sending, receiving);
  const [sent, received] = await Promise.all([sender.expect('done'), receiver.expect('done')]);
  assert.equal(received.bytes, sending.totalBytes ?? sending.sizeBytes);
  if (sending.isQuick !== true) assert.equal(received.sha1, sent.sha1);
}

const block = small.blockBytes;

describe('what was written on one host is read on the other', () => {
  for (const sizeBytes of [0, 1, block - 1, block, block + 1, 40 * block + 17]) {
    test(`${sizeBytes} bytes over TCP`, () => carry({ sizeBytes }));
  }

  for (const device of ['soft-shm', 'soft-roce', 'soft-tcp']) {
    for (const strategy of ['pool', 'register', 'copy'] as const) {
      test(`over ${device}, strategy ${strategy}, with pools that differ`, async () => {
        const options = { device, strategy };
        await carry(
          { totalBytes: 40 * block + 17, form: 'blocks', options },
          { form: 'blocks', options: { poolBlocks: 3 } },
        );
      });
    }
  }

  test('a stream whose length is known only at its end', () =>
    carry({ totalBytes: 40 * block + 17 }, { form: 'blocks', options: { poolBlocks: 3 } }));

  test('blocks of a MiB over soft-shm and TCP', async () => {
    const options = { blockBytes: MIB };
    await carry({ sizeBytes: 40 * MIB + 1, options });
    await carry({ sizeBytes: 40 * MIB + 1, options: { ...options, device: 'soft-shm' } });
  });

  test('two streams at once', async () => {
    await Promise.all([
      carry({ totalBytes: 10 * MIB, form: 'blocks' }, { form: 'blocks' }),
      carry({ totalBytes: 11 * MIB, form: 'blocks', options: { device: 'soft-shm' } }, { form: 'blocks' }),
    ]);
  });

  test('2 GiB over soft-shm in the memory of the pool and 64 MiB', { timeout: 60_000 }, async () => {
    await using from = new Peer(lab.host('a'), env);
    await using to = new Peer(lab.host('b'), env);
    const idle = await Promise.all([from.facts(), to.facts()]);
    const options = { device: 'soft-shm', blockBytes: 2 * MIB, poolBlocks: 8 };
    const job = { sizeBytes: 2048 * MIB, isQuick: true, options };
    const { sender, receiver } = await open(job, { isQuick: true, options: { poolBlocks: 8 } }, from, to);
    await Promise.all([sender.expect('done'), receiver.expect('done')]);
    const used = await Promise.all([from.facts(), to.facts()]);
    for (const [index, { residentBytes = Number.NaN }] of used.entries()) {
      const grownBytes = residentBytes - (idle[index]?.residentBytes ?? 0);
      // A sender on shm has the receiver's pool mapped as well.
      assert.ok(grownBytes <= 2 * 16 * MIB + 64 * MIB, `resident memory has grown by ${grownBytes / MIB} MiB`);
    }
  });
});

describe('a peer that fails', () => {
  const long = { sizeBytes: 64 * MIB, stopAt: 2 * MIB };

  test('killed: the other side has a typed error within 2 s, be it sender or receiver', async () => {
    for (const device of [undefined, 'soft-shm']) {
      await using from = new Peer(lab.host('a'), env);
      const { sender, receiver } = await open({ ...long, options: { device } }, {}, from);
      await sender.expect('stopped');
      const killedMs = performance.now();
      from.child.kill('SIGKILL');
      assert.equal((await receiver.expect('failed')).code, 'MILLRACE_ERR_VORTEX_PEER_DIED');
      assert.ok(performance.now() - killedMs < 2000);

      await using to = new Peer(lab.host('b'), env);
      const ends = await open({ sizeBytes: 64 * MIB, options: { device } }, { stopAt: 2 * MIB }, left, to);
      await ends.receiver.expect('stopped');
      to.child.kill('SIGKILL');
      assert.equal((await ends.sender.expect('failed')).code, 'MILLRACE_ERR_VORTEX_PEER_DIED');
    }
  });

  test('stopped: the other side gives it up after its time', async () => {
    await using from = new Peer(lab.host('a'), env);
    const { sender, receiver } = await open(long, { options: { timeoutMs: 600 } }, from);
    await sender.expect('stopped');
    from.child.kill('SIGSTOP');
    assert.equal((await receiver.expect('failed')).code, 'MILLRACE_ERR_VORTEX_TIMED_OUT');
  });

  test('behind a link that is cut: both sides give it up', async () => {
    const options = { timeoutMs: 600 };
    const { sender, receiver } = await open({ ...long, stopAt: 64 * MIB, options }, { options, stopAt: MIB });
    await receiver.expect('stopped');
    const host = lab.host('b');
    const link = (state: string): Promise<unknown> => host.run('ip', ['link', 'set', 'eth0', state]);
    await link('down');
    try {
      assert.equal((await sender.expect('failed')).code, 'MILLRACE_ERR_VORTEX_TIMED_OUT');
    } finally {
      await link('up');
    }
  });

  test('left early: the other side hears that it was closed', async () => {
    const early = await open({ ...long, closeAt: 2 * MIB, stopAt: Number.MAX_SAFE_INTEGER });
    assert.equal((await early.receiver.expect('failed')).code, 'MILLRACE_ERR_VORTEX_CLOSED_BY_PEER');
    await early.sender.expect('closed');
    const late = await open({ sizeBytes: 64 * MIB }, { closeAt: 2 * MIB });
    assert.equal((await late.sender.expect('failed')).code, 'MILLRACE_ERR_VORTEX_CLOSED_BY_PEER');
    await late.receiver.expect('closed');
  });
});

describe('TLS on the control connection', () => {
  test('the right certificates carry a stream, and wrong ones do not', async () => {
    const certificates = async (): Promise<(name: string, peerName: string) => object> => {
      const folder = temporaryRunDir();
      after(() => folder[Symbol.dispose]());
      const spec = { openssl: '/usr/bin/openssl', folder: folder.path, names: ['a', 'b'], days: 1, caDays: 2 };
      const { ca } = await makeLabCertificates(spec);
      return (name, peerName) => ({
        tls: { ca, cert: join(folder.path, `${name}.pem`), key: join(folder.path, `${name}.key`), peerName },
      });
    };
    const ours = await certificates();
    const theirs = await certificates();
    await carry({ sizeBytes: 3 * block, options: ours('a', 'b') }, { options: ours('b', 'a') });

    const host = left.host.ipv4;
    const sender = left.start('send', { host, sizeBytes: block, options: { ...small, ...ours('a', 'b') } });
    const { port } = await sender.expect('listening');
    assert.ok(port !== undefined);
    const call = (options: object): End => right.start('receive', { host, port, options: { ...small, ...options } });
    for (const options of [{}, theirs('b', 'a'), ours('b', 'x'), ours('a', 'a')]) {
      await call(options).expect('failed');
    }
    const receiver = call(ours('b', 'a'));
    for (const end of [sender, receiver]) await end.expect('open');
    await Promise.all([sender.expect('done'), receiver.expect('done')]);
  });
});

describe('one stream after the other', () => {
  test('a hundred leave no descriptor and no thread behind', { timeout: 120_000 }, async () => {
    await carry({ sizeBytes: block });
    await carry({ sizeBytes: block, options: { device: 'soft-shm' } });
    const before = await Promise.all([left.facts(), right.facts()]);
    for (let index = 0; index < 100; index++) {
      const options = index % 4 === 0 ? { device: 'soft-shm' } : {};
      await carry({ sizeBytes: 3 * block, options });
    }
    for (const [index, peer] of [left, right].entries()) {
      const { fds: maxFds = 0, threads: maxThreads = 0 } = before[index] ?? {};
      const deadlineMs = performance.now() + 5000;
      for (;;) {
        const { fds = 0, threads = 0 } = await peer.facts();
        if (fds <= maxFds && threads <= maxThreads) break;
        // An engine's thread that has waited for long enough may be about to end.
        const isLate = performance.now() > deadlineMs;
        assert.ok(!isLate, `${fds} descriptors after ${maxFds}, ${threads} threads after ${maxThreads}`);
      }
    }
  });
});
