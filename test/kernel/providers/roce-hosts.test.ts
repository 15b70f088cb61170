// RoCEv2 between two hosts, over both IP families and a network of 1500 bytes, and through
// backends.

import assert from 'node:assert/strict';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { before, test } from 'node:test';
import { type Host, Lab } from '../../../src/lab/index.ts';
import { GRH_BYTES, gidBytes } from '../../../src/verbs/index.ts';
import { sweepDeadTests, temporaryRunDir } from '../../../workbench/worlds/lab-runs.ts';
import { byteAt, places, type RocePeerCard, sizes } from './roce-peer.ts';

const program = join(import.meta.dirname, 'roce-peer.ts');
const cli = join(import.meta.dirname, '../../../src/cli/bin.ts');

interface Report {
  readonly sent?: readonly string[];
  readonly received?: readonly string[];
  readonly counters?: Readonly<Record<string, number>>;
  readonly memory: string;
}

/** A program at one end, spoken to in lines. */
class Peer {
  readonly #child: ChildProcess;
  readonly #lines: AsyncIterator<string>;

  /** With a device of its own at the address, or with the backend's. */
  constructor(host: Host, device: { readonly address: string } | { readonly backend: string }) {
    const [words, env] = 'address' in device ? [[device.address], {}] : [[], { MILLRACE_BACKEND: device.backend }];
    this.#child = host.spawn(process.execPath, [program, ...words], {
      stdio: ['pipe', 'pipe', 'inherit'],
      env: { ...process.env, ...env },
    });
    assert.ok(this.#child.stdout);
    this.#lines = createInterface({ input: this.#child.stdout })[Symbol.asyncIterator]();
  }

  tell(line: string): void {
    this.#child.stdin?.write(`${line}\n`);
  }

  async hear<T>(): Promise<T> {
    const { value, done } = await this.#lines.next();
    assert.notEqual(done, true, 'the peer has died');
    return JSON.parse(value) as T;
  }

  async end(): Promise<void> {
    this.#child.stdin?.end();
    const [code] = await once(this.#child, 'exit');
    assert.equal(code, 0);
  }
}

function expected(gid: string, from: number, length: number): Uint8Array {
  return Uint8Array.from({ length }, (_, at) => byteAt(gid, from + at));
}

before(sweepDeadTests);

/** Lends the RoCEv2 device at that address to programs of the host. */
async function startBackend(
  host: Host,
  address: string,
  folder: string,
): Promise<{ socket: string } & AsyncDisposable> {
  const [socket, api] = [join(folder, `${host.name}.guests`), join(folder, `${host.name}.api`)];
  const words = ['backend', '--socket', socket, '--api', api, '--device', 'soft-roce', '--json'];
  const child = host.spawn(process.execPath, [cli, ...words], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, MILLRACE_SOFT_ADDRESS: address },
  });
  assert.ok(child.stdout);
  await once(child.stdout, 'data');
  const stop = async (): Promise<void> => {
    child.kill('SIGTERM');
    const [code] = await once(child, 'exit');
    assert.equal(code, 0);
  };
  return { socket, [Symbol.asyncDispose]: stop };
}

for (const [family, through] of [
  ['ipv4', 'devices of their own'],
  ['ipv6', 'devices of their own'],
  ['ipv4', 'a backend on each host'],
] as const) {
  const isRemote = through === 'a backend on each host';
  test(`over ${family} and ${through}, requests of every kind and datagrams arrive as they were`, {
    timeout: 60_000,
  }, async () => {
    using dir = temporaryRunDir();
    await using undo = new AsyncDisposableStack();
    const lab = undo.use(await Lab.create({ runDir: dir.path, hosts: ['a', 'b'] }));
    const peers: Peer[] = [];
    for (const host of lab.hosts) {
      const address = host[family];
      const backend = isRemote ? undo.use(await startBackend(host, address, dir.path)).socket : '';
      peers.push(new Peer(host, isRemote ? { backend } : { address }));
    }
    const [left, right] = peers;
    assert.ok(left !== undefined && right !== undefined);
    const cards = [await left.hear<RocePeerCard>(), await right.hear<RocePeerCard>()];
    const [here, there] = cards;
    assert.ok(here !== undefined && there !== undefined);
    // 1500 bytes have no room for 2048.
    assert.deepEqual([here.activeMtu, there.activeMtu], [1024, 1024]);
    left.tell(JSON.stringify(there));
    right.tell(JSON.stringify(here));
    for (const peer of peers) assert.equal(await peer.hear(), 'ready');

    left.tell('go');
    const active = await left.hear<Report>();
    assert.deepEqual(active.sent, ['1:SUCCESS', '2:SUCCESS', '3:SUCCESS', '4:SUCCESS', '5:SUCCESS']);
    const { damaged, malformed, unexpected, unsendable } = active.counters ?? {};
    // Those of a backend's device are the backend's business.
    if (!isRemote) assert.deepEqual([damaged, malformed, unexpected, unsendable], [0, 0, 0, 0]);
    right.tell('look');
    const passive = await right.hear<Report>();
    assert.deepEqual(passive.received, ['1:SUCCESS', '2:SUCCESS']);

    const mine = Buffer.from(active.memory, 'base64');
    const theirs = Buffer.from(passive.memory, 'base64');
    const at = (memory: Buffer, place: number, length: number): Uint8Array =>
      new Uint8Array(memory.subarray(place, place + length));
    const { message, written, read, word, datagram } = places;
    assert.deepEqual(at(theirs, message, sizes.message), expected(here.gid, message, sizes.message));
    assert.deepEqual(at(theirs, written, sizes.written), expected(here.gid, written, sizes.written));
    assert.deepEqual(at(mine, read, sizes.read), expected(there.gid, read, sizes.read));
    const before = Buffer.from(expected(there.gid, word, 8)).readBigUInt64LE();
    assert.equal(mine.readBigUInt64LE(word), before);
    assert.equal(theirs.readBigUInt64LE(word), before + 1n);
    assert.deepEqual(at(theirs, datagram + GRH_BYTES, sizes.datagram), expected(here.gid, datagram, sizes.datagram));
    const header = at(theirs, datagram, GRH_BYTES);
    if (family === 'ipv6') {
      assert.equal(header[0], 0x60);
      assert.equal((header[4] << 8) | header[5], 8 + 12 + 8 + sizes.datagram + 4);
      assert.equal(header[6], 17);
      assert.deepEqual(header.slice(8, 24), gidBytes(here.gid));
      assert.deepEqual(header.slice(24), gidBytes(there.gid));
    } else {
      assert.deepEqual(header.slice(32, 36), gidBytes(here.gid).slice(12));
      assert.deepEqual(header.slice(36), gidBytes(there.gid).slice(12));
    }
    for (const peer of peers) await peer.end();
  });
}
