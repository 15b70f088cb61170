// Tests that daemons whose connections are silent do next to no work.
// Runs alone: it measures processor time.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { ProxyWorld } from '../../../workbench/worlds/proxy-world.ts';
import { RunningProgram } from '../../../workbench/worlds/running-program.ts';
import { BehavioursProgram } from '../steering/behaviours-program.ts';

const wires = ['shm', 'roce'] as const;
const holder = join(import.meta.dirname, '../steering/death/hold-connections.ts');
const listenPort = 7300;
const heldCount = 100;
const looks = 10;
const lookMs = 4000;
/** Twice what the row proxy.idle allows, as machines differ: a daemon that spins uses far more. */
const mostShare = 0.02;

const program = new BehavioursProgram();
before(sweepDeadTests);

/** Two daemons that carry connections on which nobody speaks. */
async function createSilent(wire: (typeof wires)[number]): Promise<ProxyWorld> {
  const world = await ProxyWorld.create({ wire, settings: { idleDestinations: 8 } });
  try {
    // They end with their hosts.
    await program.serve(world.b);
    await world.listening(listenPort + 3);
    const words = [holder, world.b.ipv4, String(listenPort), String(heldCount), 'once'];
    const held = RunningProgram.start(world.a, process.execPath, words);
    await held.line(/^held$/);
    return world;
  } catch (error) {
    await world.close();
    throw error;
  }
}

// Both pairs at once: each of the four daemons may use two hundredths of a core.
describe('idle daemons', { concurrency: true }, () => {
  let worlds: readonly ProxyWorld[] = [];
  before(async () => {
    worlds = await Promise.all(wires.map(createSilent));
  });
  after(() => Promise.all(worlds.map((world) => world.close())));

  for (const [index, wire] of wires.entries()) {
    test(`with ${heldCount} connections over ${wire} on which nobody speaks, each uses less than two hundredths of a core`, async (t) => {
      const both = Object.values(worlds[index]?.daemons ?? assert.fail('no world'));
      const used = async (): Promise<readonly number[]> =>
        (await Promise.all(both.map((daemon) => daemon.status()))).map(({ cpuSeconds }) => cpuSeconds);
      // A young daemon still compiles what it runs: it may take some looks until it is only idle.
      await used();
      // Of each daemon the best look counts: the machine has other things to do.
      let best = both.map(() => 1);
      for (let look = 0; look < looks; look++) {
        const before = await used();
        const startMs = performance.now();
        await sleep(lookMs);
        const after = await used();
        const passed = (performance.now() - startMs) / 1000;
        const shares = after.map((seconds, index) => (seconds - (before[index] ?? 0)) / passed);
        best = best.map((share, index) => Math.min(share, shares[index] ?? 1));
        t.diagnostic(shares.map((share) => `${(100 * share).toFixed(2)} %`).join(' and '));
        if (Math.max(...best) < mostShare) break;
      }
      assert.ok(Math.max(...best) < mostShare, best.join(' and '));
    });
  }
});
