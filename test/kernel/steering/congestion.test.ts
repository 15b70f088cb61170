// Tests that the leg between a program and the daemon is not paced, and that nobody else's
// connection is changed.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { ProxyWorld } from '../../../workbench/worlds/proxy-world.ts';
import { compile } from './compile.ts';

before(sweepDeadTests);

const source = fileURLToPath(new URL('congestion/congestion.c', import.meta.url));
const [carried, plain] = ['7000', '7001'];

test('a leg has plain reno at both ends, unless the program chose, and a socket used elsewhere has its own again', async () => {
  const program = compile([source]);
  await using world = await ProxyWorld.create({ rules: (to) => [`connect to ${to.ipv4}:${carried}`] });
  const server = world.b.spawn(program, [carried, plain], { stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = once(server, 'exit');
  await world.listening(Number(carried));
  const accepted = once(server.stdout ?? assert.fail('no output'), 'data');
  const lines = (await world.call(program, [world.b.ipv4, carried, plain])).trim().split('\n');
  const own = (await world.call('cat', ['/proc/sys/net/ipv4/tcp_congestion_control'])).trim();
  assert.deepEqual(lines, [`fresh ${own}`, 'carried reno', `chosen ${own}`, `elsewhere ${own}`]);
  assert.equal(String((await accepted)[0]).trim(), 'accepted reno');
  server.kill();
  await ended;
});
