// Containers of podman on two hosts, each host with a daemon: their programs are carried as clients
// and as servers, under the addresses that plain TCP shows, and nothing of a container stays.

import assert from 'node:assert/strict';
import { existsSync, readdirSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { ContainerWorld } from '../../../workbench/worlds/container-world.ts';
import { command } from '../../../workbench/worlds/daemon-process.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { remainsOf, sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import type { Container } from '../../../workbench/worlds/podman.ts';
import { RunningProgram } from '../../../workbench/worlds/running-program.ts';
import { succeed } from '../../../workbench/worlds/succeed.ts';

const redisPort = 6379;
const publishedPort = 6399;
const redisWords = ['redis-server', '--port', String(redisPort), '--protected-mode', 'no', '--save', ''];
/** Less than the kernel waits for an answer to its SYNs, and more than anything takes here. */
const limitSeconds = 10;
const crowd = 50;
const atOnce = 4;
const stay = ['sh', '-c', 'echo up; exec sleep infinity'];

before(sweepDeadTests);

/** Runs a program somewhere, and returns what it printed. */
type Run = (command: string, ...words: readonly string[]) => Promise<string>;

describe('containers of two hosts', { concurrency: false }, () => {
  let world: ContainerWorld;
  let redis: Container;
  let client: Container;
  let redisAddress = '10.92.2.10';
  let clientAddress = '10.92.1.20';
  before(async () => {
    world = await ContainerWorld.create();
    [redis, client] = await Promise.all([startRedis(), startClient()]);
  });
  after(() => world?.[Symbol.asyncDispose]());

  async function startRedis(): Promise<Container> {
    const publish = `${publishedPort}:${redisPort}`;
    const container = world.b.start({ name: 'redis', address: redisAddress, publish }, redisWords);
    await container.program.line(/Ready to accept connections/);
    return container;
  }

  async function startClient(): Promise<Container> {
    const container = world.a.start({ name: 'client', address: clientAddress }, stay);
    await container.program.line(/^up$/);
    return container;
  }

  const inClient: Run = (...words) => client.exec(...words);
  const onHost: Run = (command, ...words) => succeed(world.proxy.a, command, words);

  /** Which address redis sees. Whoever waits too long fails. */
  async function addressSeen(run: Run, host: string, port = redisPort): Promise<string> {
    const where = ['-h', host, '-p', String(port)];
    const list = await run('timeout', String(limitSeconds), 'redis-cli', ...where, 'client', 'list');
    const line = list.split('\n').find((each) => each.includes('cmd=client|list'));
    return /addr=([0-9.]+):/.exec(line ?? '')?.[1] ?? `none in ${list}`;
  }

  /** Connects until one is carried; all of them show that address. */
  async function carriedUnder(address: string, run: Run, host: string, port = redisPort): Promise<void> {
    await eventually(`${host}:${port} is carried`, async () => {
      const before = world.proxy.carried();
      assert.equal(await addressSeen(run, host, port), address);
      return world.proxy.carried() > before;
    });
  }

  /** Of the client's container; it ends when something is put into the list. */
  async function holdConnection(): Promise<RunningProgram> {
    const held = client.spawn('redis-cli', '-h', redisAddress, 'blpop', 'list', '0');
    await eventually('it waits', async () => (await redis.exec('redis-cli', 'client', 'list')).includes('cmd=blpop'));
    return held;
  }

  const publishedAs = { container: '', host: '' };
  test('without daemons, containers reach each other under their own addresses', async () => {
    assert.equal(await addressSeen(inClient, redisAddress), clientAddress);
    const { ipv4 } = world.proxy.b;
    publishedAs.container = await addressSeen(inClient, ipv4, publishedPort);
    publishedAs.host = await addressSeen(onHost, ipv4, publishedPort);
    assert.equal(publishedAs.host, world.proxy.a.ipv4);
  });

  test('a server in a container is carried to, from a container: each sees the true address of the other', async () => {
    await world.startDaemons();
    await carriedUnder(clientAddress, inClient, redisAddress);
  });

  test('a published port shows the address that plain TCP shows, and is carried', async () => {
    const { ipv4 } = world.proxy.b;
    await carriedUnder(publishedAs.host, onHost, ipv4, publishedPort);
    await carriedUnder(publishedAs.container, inClient, ipv4, publishedPort);
  });

  test('both daemons tell which container a connection is of', async () => {
    const there = `${redisAddress}:${redisPort}`;
    const carriedIn = async (name: 'a' | 'b'): Promise<readonly string[]> =>
      (await world.proxy.running(name).connections())
        .filter(
          ({ mode, state, local, remote }) => mode === 'carried' && state === 'open' && [local, remote].includes(there),
        )
        .map(({ container }) => container);
    await eventually('a connection that waits is carried', async () => {
      const held = await holdConnection();
      const [atClient, atServer] = await Promise.all([carriedIn('a'), carriedIn('b')]);
      const shown = await onHost(command, 'conn', '--socket', world.proxy.running('a').socketPath, 'client');
      await inClient('redis-cli', '-h', redisAddress, 'lpush', 'list', 'done');
      await held.line(/done/);
      if (atClient.length === 0) return false;
      assert.deepEqual([atClient, atServer], [['client'], ['redis']]);
      assert.match(shown, /^carried +open .* 10\.92\.1\.20:\d+ +10\.92\.2\.10:6379 .* client\b/m);
      return true;
    });
  });

  test('containers of both hosts with the same address: each host reaches its own, and the other by its published port', async () => {
    const twinAddress = '10.93.0.5';
    const makeTwin = async (name: 'a' | 'b', publish: string): Promise<Container> => {
      await world[name].addNetwork('twins', '10.93.0');
      const options = { name: 'twin', network: 'twins', address: twinAddress, publish };
      const twin = world[name].start(options, redisWords);
      await twin.program.line(/Ready to accept connections/);
      assert.equal(await twin.exec('redis-cli', 'set', 'host', name), 'OK\n');
      return twin;
    };
    const twins = await Promise.all([makeTwin('a', `6401:${redisPort}`), makeTwin('b', `6402:${redisPort}`)]);
    const near = world.a.start({ name: 'near', network: 'twins', address: '10.93.0.6' }, stay);
    await near.program.line(/^up$/);
    const hostOf = (host: string, port = redisPort): Promise<string> =>
      near.exec('timeout', String(limitSeconds), 'redis-cli', '-h', host, '-p', String(port), 'get', 'host');
    await eventually('the published port is carried', async () => {
      assert.equal(await hostOf(twinAddress), 'a\n');
      const before = world.proxy.carried();
      assert.equal(await hostOf(world.proxy.b.ipv4, 6402), 'b\n');
      return world.proxy.carried() > before;
    });
    assert.equal(await hostOf(twinAddress), 'a\n');
    await Promise.all([...twins, near].map((container) => container.kill()));
  });

  test('a namespace without an address gets the answer of plain TCP at once', async () => {
    const words = ['--net', 'timeout', String(limitSeconds), 'redis-cli', '-h', redisAddress, 'ping'];
    const { stderr } = await world.proxy.a.run('unshare', words);
    assert.match(stderr, /Network is unreachable/);
  });

  test('a namespace that a user made gets plain TCP, under its address', async () => {
    const asUser = ['--reuid', '65534', '--regid', '65534', '--clear-groups', 'unshare', '--map-root-user', '--net'];
    await using stray = RunningProgram.start(world.proxy.a, 'setpriv', [...asUser, ...stay]);
    await stray.line(/^up$/);
    const inside = ['nsenter', `--net=/proc/${stray.pid}/ns/net`];
    const plug = `ip link add stray type veth peer name eth0 netns ${stray.pid} && ip link set stray master podman1 up &&
      ${inside.join(' ')} sh -c 'ip addr add 10.92.1.200/24 dev eth0 && ip link set eth0 up && ip route add default via 10.92.1.1'`;
    await onHost('sh', '-c', plug);
    const run: Run = (...words) => onHost(...(inside as [string]), ...words);
    const carried = world.proxy.carried();
    for (let round = 0; round < 3; round++) assert.equal(await addressSeen(run, redisAddress), '10.92.1.200');
    assert.equal(world.proxy.carried(), carried);
  });

  test('a server’s container is killed: its clients hear of it, and its successor at another address is carried to', async () => {
    const held = await holdConnection();
    await redis.kill();
    await held.exit();
    redisAddress = '10.92.2.11';
    redis = await startRedis();
    await carriedUnder(clientAddress, inClient, redisAddress);
  });

  test('a client’s container is killed, and its successor at another address is carried', async () => {
    await client.kill();
    clientAddress = '10.92.1.21';
    client = await startClient();
    await carriedUnder(clientAddress, inClient, redisAddress);
  });

  test('of containers that come and go nothing is left', async () => {
    const before = { a: await world.a.remains(), b: await world.b.remains() };
    const descriptors = (): readonly number[] =>
      Object.values(world.proxy.daemons).map(({ pid }) => readdirSync(`/proc/${pid}/fd`).length);
    const atFirst = descriptors();
    let made = 0;
    const makeOne = async (): Promise<void> => {
      while (made < crowd) {
        const name = `one-of-many-${made++}`;
        const words = ['timeout', String(limitSeconds), 'redis-cli', '-h', redisAddress, 'ping'];
        const { code, stdout, stderr } = await world.a.run({ name }, words);
        assert.equal(stdout, 'PONG\n', `${name} ended with ${code}: ${stderr}`);
      }
    };
    await Promise.all(Array.from({ length: atOnce }, makeOne));
    assert.deepEqual({ a: await world.a.remains(), b: await world.b.remains() }, before);
    await eventually('the daemons have let go of them', () =>
      descriptors().every((count, at) => count <= (atFirst[at] ?? 0)),
    );
  });

  test('the daemons end in order, and of the other containers nothing is left', async () => {
    await Promise.all([redis.kill(), client.kill()]);
    assert.deepEqual([await world.a.remains(), await world.b.remains()], [[], []]);
    await world.proxy.stop();
  });
});

test('what runs in containers when their world ends is gone with it', async () => {
  const world = await ContainerWorld.create();
  const { id } = world.proxy.lab;
  const container = world.a.start({ name: 'left', publish: '8000:80' }, stay);
  await container.program.line(/^up$/);
  const pid = world.a.pidOf('left');
  await world[Symbol.asyncDispose]();
  assert.deepEqual(remainsOf(id), []);
  assert.deepEqual([existsSync(`/proc/${pid}/exe`), existsSync(world.proxy.folder.path)], [false, false]);
});
