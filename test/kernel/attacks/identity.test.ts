// Runs alone: it counts what is carried while lanes are silent for half a second, and a busy
// machine would make them silent.
//
// Who is talking: whoever talks to whom by plain TCP, under which address, does so carried, and
// nobody else, whatever an unprivileged user does meanwhile.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { ProxyWorld } from '../../../workbench/worlds/proxy-world.ts';
import { AttacksProgram, nobody } from './attacks-program.ts';

const port = 7001;
const otherPort = 7009;
const firstLanePort = 4800;
const count = 100;
/** A lane that gives no sign of life for this long gets no connections. */
const silentMs = 500;

before(sweepDeadTests);
const program = new AttacksProgram();
after(() => program[Symbol.dispose]());

describe('the identity of carried connections', { concurrency: false }, () => {
  let world: ProxyWorld;
  before(async () => {
    world = await ProxyWorld.create({ settings: { lanes: 2 } });
    await program.serve(world.b, port);
    await program.serve(world.b, otherPort);
    await world.listening(port);
    await world.listening(otherPort);
  });
  after(() => world?.close());

  /** So many connects of host a's that were carried, of `during`. */
  async function carriedBy(during: () => Promise<unknown>): Promise<number> {
    const before = world.carried();
    await during();
    return world.carried() - before;
  }

  test('clients are carried by all lanes, under their own addresses, of both families', async () => {
    for (const address of [world.b.ipv4, world.b.ipv6]) {
      const carried = await carriedBy(async () => {
        assert.deepEqual(await program.check(world.a, [address, port, count]), allRight(count));
      });
      assert.equal(carried, count);
    }
    const { lanes } = await world.running('a').status();
    assert.equal(lanes.length, 2);
  });

  test('a client that is bound to a loopback address is refused as by plain TCP', async () => {
    for (const loopback of ['127.0.0.1', '127.1.2.3']) {
      const checked = await program.check(world.a, [world.b.ipv4, port, 1, loopback], nobody);
      assert.deepEqual(checked, { right: 0, wrong: 0, failed: 1, error: 'EINVAL' });
    }
    // By IPv6, TCP sends packets from there that nobody answers.
    const before = world.running('a').verdict('source');
    await using _client = program.start(world.a, ['check', world.b.ipv6, port, 1, '::1'], nobody);
    await eventually('it is left to TCP', () => world.running('a').verdict('source') === before + 1);
  });

  test('the same address and port in another network namespace moves nobody’s connection', async () => {
    const source = 40_001;
    const attack = `ip link set lo up && ip addr add ${world.a.ipv4}/32 dev lo && ip route add default dev lo &&
      echo ready && for i in $(seq 200); do "$0" check ${world.b.ipv4} ${otherPort} 20 ${world.a.ipv4} ${source}; done`;
    const words = [...nobody, 'unshare', '-Urn', 'sh', '-c', attack];
    await using attacker = program.start(world.a, [], words);
    await attacker.line(/^ready$/);
    const carried = await carriedBy(async () => {
      const checked = await program.check(world.a, [world.b.ipv4, port, 5 * count, world.a.ipv4, source]);
      assert.deepEqual(checked, allRight(5 * count));
    });
    assert.equal(carried, 5 * count);
  });

  test('a namespace that an unprivileged user made is not served, whatever its address', async () => {
    const connect = `ip link set lo up && ip addr add 10.92.0.7/32 dev lo && ip route add default dev lo &&
      for i in 1 2 3; do timeout 0.5 "$0" check ${world.b.ipv4} ${port} 1; done; echo over`;
    const before = world.running('a').verdict('notServed');
    const carried = await carriedBy(async () => {
      await using attacker = program.start(world.a, [], [...nobody, 'unshare', '-Urn', 'sh', '-c', connect]);
      await attacker.line(/^over$/);
    });
    assert.equal(world.running('a').verdict('notServed') - before, 3);
    assert.equal(carried, 0);
  });

  test('connects from every port beside the daemon’s are shown under their own address', async () => {
    const mine = program.check(world.b, [world.b.ipv4, port, 5 * count], nobody);
    const theirs = program.check(world.a, [world.b.ipv4, port, 5 * count]);
    assert.deepEqual(await Promise.all([mine, theirs]), [allRight(5 * count), allRight(5 * count)]);
  });

  test('a client that has reset before the server accepts is shown under its true address', async () => {
    await using server = program.start(world.b, ['late', 7002]);
    await server.line(/^listening$/);
    await world.listening(7002);
    await using client = program.start(world.a, ['reset', world.b.ipv4, 7002]);
    await client.line(/^ready$/);
    const opened = (await world.running('b').status()).counters.opened;
    const carried = await carriedBy(async () => {
      client.write('go');
      const [, host, from] = (await client.line(/^done /)).split(' ');
      await eventually(
        'the daemon has reached the server',
        async () => (await world.running('b').status()).counters.opened > opened,
      );
      server.write('go');
      assert.equal(await server.line(/^accepted /), `accepted ${host} ${from}`);
      assert.equal(host, world.a.ipv4);
    });
    assert.equal(carried, 1);
  });

  test('a lane that has stopped gets no new connections, and the other carries them', async () => {
    const thread = threadOf(world.running('a').pid, 'lane-0');
    await using freezer = program.start(world.a, ['freeze', thread]);
    await freezer.line(/^frozen$/);
    await sleep(silentMs);
    const carried = await carriedBy(async () => {
      assert.deepEqual(await program.check(world.a, [world.b.ipv4, port, 20]), allRight(20));
    });
    assert.equal(carried, 20);
    freezer.write('go');
    await freezer.exit();
    await eventually('both lanes answer', async () => (await world.running('a').status()).lanes.length === 2);
  });

  test('after the death of a daemon the very next connect is plain TCP, and an impostor gets none', async () => {
    const impostors = [firstLanePort, firstLanePort + 1].map((at) =>
      program.start(world.a, ['impostor', world.a.ipv4, at], nobody),
    );
    await Promise.all(impostors.map((impostor) => impostor.line(/^trying$/)));
    await world.running('a').kill();
    const carried = world.carried();
    assert.deepEqual(await program.check(world.a, [world.b.ipv4, port, count]), allRight(count));
    await Promise.all(impostors.map((impostor) => impostor.line(/^listening$/)));
    assert.deepEqual(await program.check(world.a, [world.b.ipv4, port, count]), allRight(count));
    assert.equal(world.carried(), carried);
    for (const impostor of impostors) {
      assert.equal(impostor.hasSaid(/^got$/), false);
      await impostor.close();
    }
  });

  test('a daemon of IPv4 only leaves IPv6 to plain TCP, and finds free ports by itself', async () => {
    await world.start('a', { listen: { addresses: [world.a.ipv4], proxyPort: 0 } });
    await world.ready();
    await world.listening(port);
    const carried = await carriedBy(async () => {
      assert.deepEqual(await program.check(world.a, [world.b.ipv6, port, 10]), allRight(10));
      assert.deepEqual(await program.check(world.a, [world.b.ipv4, port, 10]), allRight(10));
    });
    assert.equal(carried, 10);
  });

  test('the server’s daemon dies: nobody inherits the addresses of its clients', async () => {
    await world.running('b').kill();
    assert.deepEqual(await program.check(world.b, [world.b.ipv4, port, 5 * count], nobody), allRight(5 * count));
  });
});

function allRight(right: number): object {
  return { right, wrong: 0, failed: 0, error: '-' };
}

function threadOf(pid: number, name: string): number {
  const found = readdirSync(`/proc/${pid}/task`).find(
    (thread) => readFileSync(`/proc/${pid}/task/${thread}/comm`, 'utf8').trim() === name,
  );
  assert.ok(found !== undefined, `process ${pid} has no thread ${name}`);
  return Number(found);
}
