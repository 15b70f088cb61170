// Tests of the shortcut: the same bytes in the same order, and nothing left behind.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { dirname } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, describe, test } from 'node:test';
import { parseRules, Steering } from '../../../src/steering/index.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { ShortcutWorld } from './shortcut/shortcut-world.ts';

const skip = process.getuid?.() !== 0 ? 'needs root' : false;
const nothing = { connecting: 0, shortcut_sockets: 0, joined: 0 };

/** A program that says hello there, and prints what comes back. */
function echo(address: string): string {
  return `require('net').connect(7777, '${address}').end('hello').on('data', (data) => console.log(String(data)))`;
}

describe('the shortcut', { skip }, () => {
  let world: ShortcutWorld;
  before(async () => {
    world = await ShortcutWorld.create();
  });
  after(async () => {
    await eventually('all entries are gone', () => Object.values(world.entries()).every((count) => count === 0));
    await world[Symbol.asyncDispose]();
  });

  test('is taken by messages between two programs of one host', async () => {
    const { redirected, byTcp } = await world.take('roundtrip', 1000, 64);
    assert.deepEqual({ redirected, byTcp }, { redirected: 2000, byTcp: 0 });
  });

  test('is taken over IPv6', async () => {
    const earlier = world.counters;
    await world.flow.run(world.short, '::1', 'roundtrip', 1000, 64);
    await world.flow.run(world.short, world.short.ipv6, 'roundtrip', 1000, 64);
    assert.equal(world.counters.redirected - earlier.redirected, 4000);
  });

  test("is taken at the host's own address", async () => {
    const earlier = world.counters;
    await world.flow.run(world.short, world.short.ipv4, 'roundtrip', 1000, 64);
    assert.equal(world.counters.redirected - earlier.redirected, 2000);
  });

  test('is not taken where no rule says so', async () => {
    world.steering.setRules(parseRules('pass to 127.0.0.0/8\nshortcut'));
    const { redirected, byTcp } = await world.take('roundtrip', 100, 64);
    world.steering.setRules(parseRules('shortcut'));
    assert.deepEqual({ redirected, byTcp }, { redirected: 0, byTcp: 0 });
  });

  test('streams both ways keep their bytes and their order, whatever the sizes and pauses', async () => {
    let redirected = 0;
    let byTcp = 0;
    for (let seed = 1; seed <= 24; seed++) {
      const kind = seed % 2 === 0 ? 'level' : 'edge';
      const pace = seed % 3 === 0 ? 'steady' : 'pauses';
      const bytes = 12_000_000;
      const taken = await world.take<{ bytes: number }>('stream', bytes, seed, kind, pace);
      assert.equal(taken.said.bytes, bytes);
      redirected += taken.redirected;
      byTcp += taken.byTcp;
    }
    // Both ways were used, or nothing was shown.
    assert.ok(redirected > 100 && byTcp > 100, `${redirected} redirected, ${byTcp} by TCP`);
  });

  test('nothing overtakes anything when the reader waits for whole blocks inside TCP', async () => {
    for (let round = 0; round < 3; round++) {
      const { said, redirected, byTcp } = await world.take<{ isRight: boolean }>('waitall-stream');
      assert.ok(said.isRight);
      assert.ok(redirected > 0 && byTcp > 0);
    }
  });

  test('a stream of small messages goes on taking it: what was read gives credit back', async () => {
    const { redirected } = await world.take('roundtrip', 5000, 1);
    assert.equal(redirected, 10_000);
  });

  test('what was sent before close arrives whole, 200 times', async () => {
    const { said, redirected } = await world.take<{ right: number }>('closes', 200);
    assert.equal(said.right, 200);
    assert.ok(redirected > 200);
  });

  test('an answer arrives whole at a client that has ended its half', async () => {
    const { said, redirected } = await world.take<{ right: number }>('halfclose', 100);
    assert.equal(said.right, 100);
    assert.ok(redirected >= 300);
  });

  test('a reset comes after what was sent before it, as in TCP', async () => {
    const { said } = await world.take('reset');
    assert.deepEqual(said, await world.plainly('reset'));
  });

  test('what a process sent before it was killed arrives', async () => {
    const { said } = await world.take<{ received: number }>('death');
    assert.equal(said.received, 500_000);
  });

  test('a socket that is used a second time does not show what was left of the first', async () => {
    const { said, redirected } = await world.take('again');
    assert.deepEqual(said, { received: 'new', length: 3 });
    assert.equal(redirected, 2);
  });

  test('5,000 connections are open at once, and leave nothing in the maps', async () => {
    const { said, redirected } = await world.take<{ right: number }>('crowd', 5000);
    assert.equal(said.right, 15_000);
    assert.equal(redirected, 30_000);
    await eventually('all entries are gone', () => Object.values(world.entries()).every((count) => count === 0));
  });

  test('connects that are refused leave nothing in the maps', async () => {
    for (let i = 0; i < 20; i++) {
      const { code } = await world.short.run('bash', ['-c', 'exec 3<>/dev/tcp/127.0.0.1/9']);
      assert.notEqual(code, 0);
    }
    assert.deepEqual(world.entries(), nothing);
  });

  test('a connection of which only one end is steered stays with TCP, in no map at all', async () => {
    const earlier = world.counters;
    // The server is in the other host's cgroup, and in this one's network.
    const enter = ['-c', `echo 0 > ${world.plain.cgroup}/cgroup.procs && exec "$@"`, 'sh'];
    const serve = "require('net').createServer((s) => s.pipe(s)).listen(7777, () => console.log('ready'))";
    const server = world.short.spawn('sh', [...enter, process.execPath, '-e', serve], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    try {
      assert.ok(server.stdout);
      await once(createInterface({ input: server.stdout }), 'line');
      const { stdout } = await world.short.run(process.execPath, ['-e', echo('127.0.0.1')]);
      assert.equal(stdout.trim(), 'hello');
      assert.deepEqual(world.counters, earlier);
      assert.deepEqual(world.entries(), nothing);
    } finally {
      server.kill('SIGKILL');
    }
  });

  test('the same addresses and ports in another network namespace are another connection', async () => {
    using both = Steering.create({
      instance: `${world.steering.instance}-both`,
      cgroup: dirname(world.plain.cgroup),
      rules: parseRules('shortcut'),
    });
    world.steering.setRules(parseRules('pass'));
    for (let round = 0; round < 8; round++) {
      world.flow.env = { FLOW_CLIENT_PORT: String(7001 + round), FLOW_SERVER_PORT: '7000' };
      const streams = [world.plain, world.short].map((host, index) =>
        world.flow.run<{ bytes: number }>(host, '127.0.0.1', 'stream', 5_000_000, 90 + index, 'level', 'pauses'),
      );
      for (const { bytes } of await Promise.all(streams)) assert.equal(bytes, 5_000_000);
    }
    world.flow.env = {};
    world.steering.setRules(parseRules('shortcut'));
    assert.ok((both.shortcutCounters()?.redirected ?? 0) > 0);
  });

  test('connections with the same sequence numbers as well, in two network namespaces, are not mixed up', async () => {
    using both = Steering.create({
      instance: `${world.steering.instance}-both`,
      cgroup: dirname(world.plain.cgroup),
      rules: parseRules('shortcut'),
    });
    world.steering.setRules(parseRules('pass'));
    // The clients' numbers are the same each time; the servers' are when both accept in the same 64
    // ns.
    world.flow.env = { FLOW_CLIENT_PORT: '10000', FLOW_SERVER_PORT: '7000', FLOW_FIRST_SEQ: '1000000' };
    const start = Math.round(Number(process.hrtime.bigint()) / 1e6) + 300;
    const meetings = [world.plain, world.short].map((host, index) =>
      world.flow.run<{ right: number; wrong: number }>(host, '127.0.0.1', 'meet', 10_000, start, 0.3, index),
    );
    for (const { right, wrong } of await Promise.all(meetings)) assert.ok(right > 100 && wrong === 0);
    world.flow.env = {};
    world.steering.setRules(parseRules('shortcut'));
    assert.ok((both.shortcutCounters()?.redirected ?? 0) > 100);
  });

  test('programs in two network namespaces of one host take it, too', async () => {
    using both = Steering.create({
      instance: `${world.steering.instance}-both`,
      cgroup: dirname(world.plain.cgroup),
      rules: parseRules('shortcut'),
    });
    world.steering.setRules(parseRules('pass'));
    const serve = `require('net').createServer((s) => s.pipe(s)).listen(7777, () => console.log('ready'))`;
    const server = world.plain.spawn(process.execPath, ['-e', serve], { stdio: ['ignore', 'pipe', 'inherit'] });
    try {
      assert.ok(server.stdout);
      await once(createInterface({ input: server.stdout }), 'line');
      const { stdout } = await world.short.run(process.execPath, ['-e', echo(world.plain.ipv4)]);
      assert.equal(stdout.trim(), 'hello');
      assert.deepEqual(both.shortcutCounters(), { redirected: 2, byTcp: 0 });
    } finally {
      server.kill('SIGKILL');
      world.steering.setRules(parseRules('shortcut'));
    }
  });
});
