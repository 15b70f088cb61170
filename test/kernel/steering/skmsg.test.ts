// Tests of `skmsg`: what works through proxy sockets, and what does not, as measured.

import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import { UsageError } from '../../../src/errors.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { RunningProgram } from '../../../workbench/worlds/running-program.ts';
import { SERVER_PORT, SkmsgWorld } from './skmsg/skmsg-world.ts';

const skip = process.getuid?.() !== 0 ? 'needs root' : false;

/** Nothing of this thread runs meanwhile. */
function standStill(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

describe('connections that proxy sockets stand for', { skip }, () => {
  let world: SkmsgWorld;
  before(async () => {
    world = await SkmsgWorld.create(64, 'both hosts');
  });
  after(() => world[Symbol.asyncDispose]());

  /** How many messages went to proxy sockets meanwhile. */
  async function toProxyDuring(work: () => Promise<void>): Promise<number> {
    const { toProxy } = world.pool.counters();
    await work();
    return world.pool.counters().toProxy - toProxy;
  }

  test('a pool of no sockets, or of far too many, is refused', () => {
    for (const size of [0, -1, 1.5, 100_000]) {
      assert.throws(() => world.steering.openSkmsgPool({ size }), UsageError);
    }
  });

  test('messages go to proxy sockets and from them, both ways', async () => {
    const count = await toProxyDuring(async () => {
      await world.run('roundtrip', 500, 64);
    });
    assert.equal(count, 1000);
  });

  test('streams both ways keep their bytes and their order, and end where they should', async () => {
    for (let seed = 1; seed <= 10; seed++) {
      const { bytes } = await world.run<{ bytes: number }>(
        'stream',
        4_000_000,
        seed,
        seed % 2 ? 'level' : 'edge',
        'pauses',
      );
      assert.equal(bytes, 4_000_000);
    }
  });

  test('redis keeps what it was given, and answers 5 clients', async () => {
    const port = String(SERVER_PORT);
    await using server = RunningProgram.start(world.host, 'redis-server', ['--port', port, '--save', '']);
    await server.line(/Ready to accept connections/i);
    const run = async (command: string, args: readonly string[], input = ''): Promise<string> => {
      const { code, stdout, stderr } = await world.host.run(command, ['-p', port, ...args], { input });
      assert.equal(code, 0, stderr);
      return stdout;
    };
    const count = await toProxyDuring(async () => {
      for (const size of [10, 10_000, 1_000_000]) {
        const value = randomBytes(size / 2).toString('hex');
        assert.equal((await run('redis-cli', ['-x', 'SET', 'key'], value)).trim(), 'OK');
        const got = (await run('redis-cli', ['GET', 'key'])).trimEnd();
        assert.equal(createHash('sha1').update(got).digest('hex'), createHash('sha1').update(value).digest('hex'));
      }
      await run('redis-benchmark', ['-c', '5', '-n', '5000', '-t', 'set,get', '-q']);
    });
    assert.ok(count > 20_000, `${count} to proxy sockets`);
  });

  test('a FIN waits until all before it was delivered: nothing is cut off', async () => {
    const { heldFins } = world.pool.counters();
    assert.deepEqual(await world.run('closes', 20), { right: 20 });
    assert.deepEqual(await world.run('halfclose', 10), { right: 10 });
    assert.ok(world.pool.counters().heldFins - heldFins >= 20);
  });

  test('a socket that is used a second time has nothing of the first', async () => {
    assert.deepEqual(await world.run('again'), { received: 'new', length: 3 });
  });

  test('the pool is filled up again, and lets go of what was closed', async () => {
    await world.run('crowd', 20);
    await eventually('all proxy sockets are free', () => world.pool.takenCount === 0 && world.pool.freeCount === 64);
  });

  test('with an empty pool both ends of a connection stay with plain TCP', async () => {
    const earlier = world.pool.counters();
    const { right } = await world.run<{ right: number }>('crowd', 1000);
    assert.equal(right, 3000);
    assert.ok(world.pool.counters().noProxy > earlier.noProxy);
    await eventually('all proxy sockets are free', () => world.pool.takenCount === 0 && world.pool.freeCount === 64);
  });

  test('nothing holds a sender back: all of 200 MB is taken while the receiver stands still', async () => {
    const total = 200_000_000;
    const said = await world.run<{ sentAtRest: number; heldKib: number; received: number }>(
      'stall',
      'blocking',
      total,
      65_536,
      500,
    );
    assert.equal(said.sentAtRest, total);
    assert.ok(said.heldKib > 150_000, JSON.stringify(said));
    assert.equal(said.received, total);
  });

  test('connections with the same addresses and sequence numbers, in two network namespaces, are not mixed up', async () => {
    const { env } = world.flow;
    const pairs = world.carrier.pairs;
    // The clients' numbers are the same each time, and both connect at once.
    world.flow.env = { ...env, FLOW_CLIENT_PORT: '10000', FLOW_FIRST_SEQ: '1000000' };
    const start = Math.round(Number(process.hrtime.bigint()) / 1e6) + 300;
    const meetings = [world.host, world.other].map((host, index) =>
      world.flow.run<{ right: number; wrong: number }>(host, '127.0.0.1', 'meet', 750, start, 2, index),
    );
    world.flow.env = env;
    for (const { right, wrong } of await Promise.all(meetings)) assert.deepEqual([right > 0, wrong], [true, 0]);
    assert.ok(world.carrier.pairs > pairs, 'none was taken over');
    await eventually('all proxy sockets are free', () => world.pool.takenCount === 0 && world.pool.freeCount === 64);
    // None of them waits for a server that will never come: all 64 can be had at once.
    const [before, earlier] = [world.carrier.pairs, world.pool.counters()];
    const crowd = world.run('crowd', 32);
    standStill(500); // no refill while they connect
    await crowd;
    assert.equal(world.carrier.pairs - before, 32);
    assert.equal(world.pool.counters().noProxy, earlier.noProxy);
  });

  test('a program whose daemon is gone gets an error, and no hole in its stream', async () => {
    const other = await SkmsgWorld.create(4);
    const script = `
      const net = require('net');
      const server = net.createServer((socket) => socket.on('data', () => {}).on('error', () => {})).listen(${SERVER_PORT}, () => {
        const client = net.connect(${SERVER_PORT}, '127.0.0.1', () => {
          client.write('before', () => console.log('sent'));
          process.stdin.once('data', () => client.write('after'));
        });
        client.on('error', ({ code }) => { console.log('error', code); process.exit(); });
      });`;
    const child = other.host.spawn(process.execPath, ['-e', script], { stdio: ['pipe', 'pipe', 'inherit'] });
    try {
      const lines: string[] = [];
      child.stdout?.on('data', (chunk: Buffer) => lines.push(chunk.toString()));
      await eventually('the program has sent', () => lines.join('').includes('sent'));
      await eventually('both ends are taken over', () => other.pool.takenCount === 2);
      other.carrier[Symbol.dispose]();
      other.pool.close();
      child.stdin?.write('go\n');
      await eventually('the program hears of it', () => lines.join('').includes('error EACCES'));
    } finally {
      child.kill('SIGKILL');
      await other[Symbol.asyncDispose]();
    }
  });
});
