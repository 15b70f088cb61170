// Tests that daemons find each other through a real etcd, carry, move to another etcd while they
// carry, and forget one that leaves.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { unlessStarved } from '../../../workbench/worlds/carrying-world.ts';
import { Etcd } from '../../../workbench/worlds/etcd.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { ProxyWorld } from '../../../workbench/worlds/proxy-world.ts';
import { RunningProgram } from '../../../workbench/worlds/running-program.ts';
import { BehavioursProgram } from '../steering/behaviours-program.ts';

const clientPort = 2379;
const otherPort = 2389;
const listenPort = 7300;
const holder = join(import.meta.dirname, '../steering/death/hold-connections.ts');

before(sweepDeadTests);

test('daemons that know only etcd find each other, carry, and miss one that leaves', async () => {
  const program = new BehavioursProgram();
  const endpoints = ['http://10.77.0.1:2379'];
  const etcd = { endpoints, leaseSeconds: 5 };
  await using world = await ProxyWorld.createIdle({ settings: { peers: [], etcd } });
  assert.equal(`http://${world.a.ipv4}:${clientPort}`, endpoints[0]);
  // They may come first.
  await Promise.all([world.start('a'), world.start('b')]);
  const { a, b } = world.daemons;
  // It has no peer, and no way to learn of one.
  for (const daemon of [a, b]) await daemon.logged(/: not-ready: \S/);
  await using first = await Etcd.start({ host: world.a, port: clientPort });
  await world.ready();
  for (const daemon of [a, b]) await daemon.logged(/: ready$/, 2);
  const { name, source } = await world.running('a').peer();
  assert.deepEqual([name, source], ['b', 'etcd']);
  await using server = await program.serve(world.b);
  await world.listening(listenPort);
  await unlessStarved(world, async () => {
    const before = world.carried();
    const { client } = await program.observe('threads', world.a, server, world.b.ipv4);
    assert.equal(client, '400 of 400 right');
    assert.equal(world.carried() - before, 400);
  });

  // To another etcd, one daemon after the other, with connections open.
  const words = [holder, world.b.ipv4, String(listenPort), '10', 'once'];
  await using held = RunningProgram.start(world.a, process.execPath, words);
  await held.line(/^held$/);
  await using second = await Etcd.start({ host: world.a, port: otherPort });
  const moved = { ...etcd, endpoints: [second.endpoint] };
  for (const name of ['a', 'b'] as const) {
    const daemon = world.daemons[name];
    daemon.configure({ ...world.settingsOf(name), etcd: moved });
    daemon.signal('SIGHUP');
    await daemon.logged(/reloaded: taken over: etcd; believed to be a peer: /);
  }
  await first.stop();
  for (const daemon of [a, b]) assert.equal((await daemon.peer()).state, 'up');
  const open = (await a.connections()).filter(({ pid, mode }) => mode === 'carried' && pid === held.pid);
  assert.equal(open.length, 10);
  await held.close();

  await b.stop();
  await eventually('it is forgotten', async () => (await world.running('a').status()).peers.length === 0);
  await world.start('b', { etcd: moved });
  await world.ready();
  await world.stop();
});
