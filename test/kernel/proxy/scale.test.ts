// Tests of daemons with many connections: spread over lanes, and thousands at once.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { unlessStarved } from '../../../workbench/worlds/carrying-world.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { ProxyWorld } from '../../../workbench/worlds/proxy-world.ts';
import { RunningProgram } from '../../../workbench/worlds/running-program.ts';
import { BehavioursProgram } from '../steering/behaviours-program.ts';

const holder = join(import.meta.dirname, '../steering/death/hold-connections.ts');
const listenPort = 7300;
const spreadCount = 500;
const openCount = 5000;
/**
 * The kernel spreads them by chance: of 500, fewer than this on one of two lanes would not happen
 * once in a lifetime.
 */
const leastOnLane = 180;

before(sweepDeadTests);
const program = new BehavioursProgram();

describe('two lanes', { concurrency: false }, () => {
  let world: ProxyWorld;
  let server: RunningProgram;
  before(async () => {
    world = await ProxyWorld.create({ settings: { lanes: 2 } });
    server = await program.serve(world.b);
    await world.listening(listenPort + 3);
  });
  after(() => world?.close());

  const lanesOf = async (name: 'a' | 'b'): Promise<readonly number[]> =>
    (await world.daemons[name].status()).lanes.map(({ connections }) => connections);
  const sum = (counts: readonly number[]): number => counts.reduce((all, one) => all + one, 0);

  const noneIsLeft = (): Promise<void> =>
    eventually('none is left', async () => sum(await lanesOf('a')) + sum(await lanesOf('b')) === 0);

  test(`${spreadCount} connections are spread over both, on both sides, and are gone when they end`, (t) =>
    unlessStarved(world, async () => {
      await noneIsLeft();
      const words = [holder, world.b.ipv4, String(listenPort), String(spreadCount), 'once'];
      await using held = RunningProgram.start(world.a, process.execPath, words);
      await held.line(/^held$/);
      const lanes = { a: await lanesOf('a'), b: await lanesOf('b') };
      t.diagnostic(JSON.stringify(lanes));
      for (const counts of Object.values(lanes)) {
        assert.equal(counts.length, 2);
        assert.equal(sum(counts), spreadCount);
        assert.ok(Math.min(...counts) >= leastOnLane, counts.join(' and '));
      }
      const listed = await world.daemons.a.connections();
      assert.deepEqual(new Set(listed.map(({ lane }) => lane)), new Set([0, 1]));
      assert.ok(listed.every(({ mode, wire, peer }) => mode === 'carried' && wire === 'shm' && peer === 'b'));
      await held.close();
      await noneIsLeft();
    }));

  test(`${openCount} connections at once work, and leave nothing behind`, async (t) => {
    await unlessStarved(world, async () => {
      const before = (await world.daemons.b.status()).counters.opened;
      const { client, remarks } = await program.observe('open', world.a, server, world.b.ipv6);
      t.diagnostic(`${client}; ${remarks}`);
      assert.match(client, new RegExp(`^${openCount} of ${openCount}`));
      const { counters } = await world.daemons.b.status();
      assert.equal(counters.opened - before, openCount);
      await noneIsLeft();
    });
    await world.stop();
  });
});
