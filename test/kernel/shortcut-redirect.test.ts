// Tests of `connect` with `redirect`: the leg between a program and the relay takes the shortcut.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { Host } from '../../src/lab/index.ts';
import { BpfMap } from '../../src/native/index.ts';
import { ShortcutWorld } from './shortcut/shortcut-world.ts';
import type { RelayProcess } from './steering/relay-process.ts';
import { RunningProgram } from './steering/running-program.ts';
import { SteeredWorld } from './steering/steered-world.ts';

const skip = process.getuid?.() !== 0 ? 'needs root' : false;
const port = '6391';
const peer = join(import.meta.dirname, 'shortcut/http-peer.ts');

function redirectEverything(to: Host): readonly string[] {
  return [`connect to ${to.ipv4} redirect`, `connect to ${to.ipv6} redirect`];
}

function redirected(relay: RelayProcess): number {
  using map = BpfMap.openPinned(join(relay.pinFolder, 'shortcut_counts'));
  const value = new Uint8Array(8);
  map.lookup(new Uint8Array(4), value);
  return Number(new DataView(value.buffer).getBigUint64(0, true));
}

describe('a connection that is carried by a rule with redirect', { skip }, () => {
  let world: SteeredWorld;
  before(async () => {
    world = await SteeredWorld.create();
    await world.stop();
    await world.startRelays(redirectEverything);
  });
  after(() => world.close());

  test('carries redis, and its leg to the relay takes the shortcut', async () => {
    const words = ['--port', port, '--bind', '0.0.0.0', '--protected-mode', 'no', '--save', ''];
    await using server = RunningProgram.start(world.b, 'redis-server', words);
    await server.line(/Ready to accept connections/i);
    await world.listening(Number(port));
    const earlier = redirected(world.relays.a);
    const target = ['-h', world.b.ipv4, '-p', port];
    for (const size of [1, 1000, 1_000_000]) {
      const value = randomBytes(size / 2 + 1).toString('hex');
      assert.equal((await world.call('redis-cli', [...target, '-x', 'SET', 'key'], value)).trim(), 'OK');
      assert.equal((await world.call('redis-cli', [...target, 'GET', 'key'])).trimEnd(), value);
    }
    const load = ['-c', '30', '-n', '10000', '-t', 'set,get', '-q'];
    assert.match(await world.call('redis-benchmark', [...target, ...load]), /GET: .* requests per second/);
    assert.ok(redirected(world.relays.a) - earlier > 20_000);
  });

  test('carries HTTP/1.1 and HTTP/2 of Node programs, up to 20 MB', async () => {
    await using server = RunningProgram.start(world.b, process.execPath, [peer, 'serve', world.b.ipv4]);
    await server.line(/^ready$/);
    await world.listening(8101);
    await world.listening(8102);
    const earlier = redirected(world.relays.a);
    assert.equal((await world.call(process.execPath, [peer, 'call', world.b.ipv4])).trim(), '168 right');
    assert.ok(redirected(world.relays.a) - earlier > 300);
  });
});

describe('a daemon in a cgroup that is not steered', { skip }, () => {
  test('takes part in the shortcut at its door', async () => {
    await using world = await ShortcutWorld.create('pass');
    const { plain, short } = world;
    const daemon = join(import.meta.dirname, 'shortcut/door-daemon.ts');
    const words = [daemon, short.cgroup, `${world.steering.instance}-door`, short.ipv4, '10.99.99.99:9999'];
    const enter = ['-c', `echo 0 > ${plain.cgroup}/cgroup.procs && exec "$@"`, 'sh', process.execPath, ...words];
    await using door = RunningProgram.start(short, 'sh', enter);
    await door.line(/^ready$/);
    const ask = `require('net').connect(9999, '10.99.99.99').end('hello').on('data', (data) => console.log(String(data)))`;
    const { stdout } = await short.run(process.execPath, ['-e', ask], { signal: AbortSignal.timeout(10_000) });
    assert.equal(stdout.trim(), 'hello');
    door.signal('SIGTERM');
    assert.deepEqual(JSON.parse(await door.line(/redirected/)), { redirected: 2, byTcp: 0 });
    await door.exit();
  });
});
