// Tests that daemons make a link when something is carried over it, give it back when nothing is,
// and leave connections to plain TCP where none can be made.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import type { DaemonProcess } from '../../../workbench/worlds/daemon-process.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { ProxyWorld } from '../../../workbench/worlds/proxy-world.ts';
import type { RunningProgram } from '../../../workbench/worlds/running-program.ts';
import { BehavioursProgram } from '../steering/behaviours-program.ts';

const listenPort = 7300;
/** What a link may have resident after a short conversation; its rings have 8 MiB. */
const LITTLE_KIB = 256;

before(sweepDeadTests);
const program = new BehavioursProgram();

const descriptorsOf = ({ pid }: DaemonProcess): number => readdirSync(`/proc/${pid}/fd`).length;

/** KiB resident of the rings of each link. */
function ringsOf({ pid }: DaemonProcess): readonly number[] {
  const maps = readFileSync(`/proc/${pid}/smaps`, 'utf8').split(/^(?=[0-9a-f]+-[0-9a-f]+ )/m);
  return maps.filter((map) => map.includes('memfd:channel')).map((map) => Number(/^Rss: +(\d+)/m.exec(map)?.[1]));
}

async function converse(world: ProxyWorld, server: RunningProgram): Promise<boolean> {
  const before = world.carried();
  const { client } = await program.observe('nonblocking', world.a, server, world.b.ipv4);
  assert.match(client, /answer 16 from listener 0$/);
  return world.carried() > before;
}

async function linksOf(world: ProxyWorld): Promise<readonly string[]> {
  const peers = await Promise.all(Object.values(world.daemons).map((daemon) => daemon.peer()));
  return peers.flatMap(({ state, links }) => links.map((link) => `${state} ${link.state}`));
}

for (const wire of ['shm', 'tcp'] as const) {
  describe(`the link of two daemons over ${wire}`, { concurrency: false }, () => {
    let world: ProxyWorld;
    let server: RunningProgram;
    before(async () => {
      world = await ProxyWorld.create({ wire, settings: { channel: { idleSeconds: 1, heartbeatMs: 100 } } });
      server = await program.serve(world.b);
      await world.listening(listenPort + 3);
    });
    after(() => world?.close());

    test('is not there before something is carried: the peer is up, and has no rings', async () => {
      assert.deepEqual(await linksOf(world), ['up idle', 'up idle']);
      for (const daemon of Object.values(world.daemons)) assert.deepEqual(ringsOf(daemon), []);
    });

    test('is made for the first connection, which it carries, and has few pages', async (t) => {
      assert.equal(await converse(world, server), true);
      assert.deepEqual(await linksOf(world), ['up up', 'up up']);
      for (const daemon of Object.values(world.daemons)) {
        const rings = ringsOf(daemon);
        t.diagnostic(`${daemon.host.name}: ${rings.join()} KiB`);
        // In shared memory each has mapped those of the other, too.
        assert.ok(rings.length >= 1);
        for (const kib of rings) assert.ok(kib < LITTLE_KIB, `${kib} KiB`);
      }
    });

    test('is given back by both, with its descriptors, and made again', async (t) => {
      const gone = async (): Promise<boolean> => (await linksOf(world)).every((words) => words === 'up idle');
      await eventually('it is given back', gone);
      const both = Object.values(world.daemons);
      for (const daemon of both) assert.deepEqual(ringsOf(daemon), []);
      const before = both.map(descriptorsOf);
      assert.equal(await converse(world, server), true);
      t.diagnostic(`descriptors: ${both.map(descriptorsOf).join()} with a link, ${before.join()} without`);
      await eventually('it is given back again', gone);
      await eventually('its descriptors are closed', () =>
        both.every((daemon, index) => descriptorsOf(daemon) <= (before[index] ?? 0)),
      );
      const { counters } = await world.daemons.a.status();
      assert.ok(counters.bytesOut > 0, 'what was carried still counts');
      await world.stop();
    });
  });
}

describe('daemons without a wire in common', { concurrency: false }, () => {
  let world: ProxyWorld;
  before(async () => {
    world = await ProxyWorld.create({ settings: (name) => ({ devices: [name === 'a' ? 'soft-shm' : 'soft-tcp'] }) });
  });
  after(() => world?.close());

  test('reset the first connection, and leave all others to plain TCP', async () => {
    await using server = await program.serve(world.b);
    await world.listening(listenPort + 3);
    const { client } = await program.observe('nonblocking', world.a, server, world.b.ipv4);
    assert.doesNotMatch(client, /answer 16 from listener 0$/);
    const { state, reason } = await world.daemons.a.peer();
    assert.equal(state, 'connecting');
    assert.match(reason, /no device here for the wire shm/);
    const there = `${world.b.ipv4}:${listenPort}`;
    await eventually('it is withdrawn', () => !world.daemons.a.isAnnounced(there));
    assert.equal(await converse(world, server), false);
    await world.stop();
  });
});
