// Tests that daemons find each other through a real etcd, carry, and forget one that leaves.
// Runs beside other files: it mostly waits.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { sweepDeadTests } from '../fixtures/lab-world.ts';
import { BehavioursProgram } from '../steering/behaviours-program.ts';
import { RunningProgram } from '../steering/running-program.ts';
import { until } from '../steering/world.ts';
import { ProxyWorld } from './proxy-world.ts';

const clientPort = 2379;
const doorPort = 7300;

before(sweepDeadTests);

/** In host a, where both daemons reach it. */
function startEtcd({ a, folder }: ProxyWorld): RunningProgram {
  const client = `http://${a.ipv4}:${clientPort}`;
  const peer = `http://${a.ipv4}:${clientPort + 1}`;
  const words = [
    '--data-dir',
    join(folder.path, 'etcd'),
    '--log-level',
    'error',
    '--listen-client-urls',
    client,
    '--advertise-client-urls',
    client,
    '--listen-peer-urls',
    peer,
    '--initial-advertise-peer-urls',
    peer,
    '--initial-cluster',
    `default=${peer}`,
  ];
  return RunningProgram.start(a, 'etcd', words);
}

test('daemons that know only etcd find each other, carry, and miss one that leaves', async () => {
  using program = new BehavioursProgram();
  const endpoints = ['http://10.77.0.1:2379'];
  const etcd = { endpoints, leaseSeconds: 5 };
  await using world = await ProxyWorld.createIdle({ settings: { peers: [], etcd } });
  assert.equal(`http://${world.a.ipv4}:${clientPort}`, endpoints[0]);
  // They may come first.
  await Promise.all([world.start('a'), world.start('b')]);
  await using _etcd = startEtcd(world);
  await world.ready();
  const { name, source } = await world.running('a').peer();
  assert.deepEqual([name, source], ['b', 'etcd']);
  await using server = await program.serve(world.b);
  await world.listening(doorPort);
  const before = world.carried();
  const { client } = await program.observe('threads', world.a, server, world.b.ipv4);
  assert.equal(client, '400 of 400 right');
  assert.equal(world.carried() - before, 400);
  await world.running('b').stop();
  await until('it is forgotten', async () => (await world.running('a').status()).peers.length === 0);
  await world.start('b');
  await world.ready();
  await world.stop();
});
