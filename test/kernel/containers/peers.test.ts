// Tests `admission: peers`: nobody knocks, and a peer is believed where its containers listen and
// which addresses they have, whatever a packet filter says.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { ProxyWorld } from '../../../workbench/worlds/proxy-world.ts';
import { succeed } from '../../../workbench/worlds/succeed.ts';
import { AttacksProgram } from '../attacks/attacks-program.ts';

const port = 7001;

before(sweepDeadTests);
const program = new AttacksProgram();
after(() => program[Symbol.dispose]());

describe('peers that are believed without packets', { concurrency: false }, () => {
  let world: ProxyWorld;
  before(async () => {
    world = await ProxyWorld.create({ hasPods: true, settings: { admission: 'peers' } });
    await program.serve(world.serverHost, port);
  });
  after(() => world?.close());

  /** Whether it was carried; the server saw the true client in any case. */
  async function isCarried(): Promise<boolean> {
    const before = world.carried();
    const { right } = await program.check(world.clientHost, [world.serverHost.ipv4, port, 1]);
    assert.equal(right, 1);
    return world.carried() > before;
  }

  test('a server in a container is carried to, from a container', async () => {
    await eventually('it is carried', isCarried);
    assert.equal(await isCarried(), true);
  });

  test('a packet filter on the way is not asked', async () => {
    const lines = ['add table inet t', 'add chain inet t c { type filter hook forward priority 0 ; }'];
    const rule = `add rule inet t c tcp dport ${port} drop\n`;
    await succeed(world.b, 'nft', ['-f', '-'], [...lines, rule].join('\n'));
    assert.equal(await isCarried(), true);
    assert.equal(world.running('a').verdict('notAdmitted'), 0);
  });

  test('a peer that asks packets is refused, with what to do', async () => {
    const { b } = world.daemons;
    await b.stop();
    await world.start('b', { admission: 'packets' });
    await world.running('a').logged(/admission is peers, and here it is packets: give both the same/);
    await eventually('it is plain TCP', async () => (await world.running('a').peer()).state !== 'up');
  });
});
