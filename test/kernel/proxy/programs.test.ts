// Tests that programs nobody here wrote run unchanged when daemons carry them between two hosts,
// with the results of plain TCP.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { unlessStarved } from '../../../workbench/worlds/carrying-world.ts';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { ProxyWorld, type Wire } from '../../../workbench/worlds/proxy-world.ts';
import { PlainRuns } from '../steering/plain-runs.ts';
import { type Program, programs } from '../steering/program-list.ts';
import { tryRedis } from '../steering/programs/redis.ts';
import { tryRsync } from '../steering/programs/rsync.ts';

before(sweepDeadTests);

const plain = new PlainRuns();
after(() => plain[Symbol.asyncDispose]());

/** Returns what was carried, in words. */
async function runCarried(world: ProxyWorld, { run, connections }: Program, expected: unknown): Promise<string> {
  const { a, b } = world.daemons;
  const before = { a: await a.status(), b: await b.status() };
  assert.deepEqual(await run(world), expected);
  const after = { a: await a.status(), b: await b.status() };
  const carried = (after.a.verdicts.carried ?? 0) - (before.a.verdicts.carried ?? 0);
  const opened = after.b.counters.opened - before.b.counters.opened;
  assert.ok(carried >= connections, `only ${carried} connections were carried`);
  assert.equal(opened, carried, 'the other daemon called the servers as often');
  assert.equal(after.a.counters.refused, before.a.counters.refused);
  for (const { peers } of [after.a, after.b]) {
    const wires = peers.flatMap(({ links }) => links.map(({ wire }) => wire));
    assert.deepEqual(new Set(wires), new Set([world.wire]));
  }
  const sent = after.a.counters.bytesOut - before.a.counters.bytesOut;
  const got = after.a.counters.bytesIn - before.a.counters.bytesIn;
  return `${carried} connections carried, ${sent} bytes out, ${got} in`;
}

/**
 * Runs the programs over a wire, and asks the daemons whether it was them who carried, and on which
 * wire.
 */
function compareAll(wire: Wire, chosen: readonly Program[]): void {
  let world: ProxyWorld | undefined;
  before(async () => {
    world = await ProxyWorld.create({ wire });
  });
  after(() => world?.close());

  for (const program of chosen) {
    test(`${program.name} over ${wire}`, async (t) => {
      assert.ok(world !== undefined);
      const expected = await plain.resultOf(program.run);
      const carrying = world;
      await unlessStarved(carrying, async () => {
        t.diagnostic(await runCarried(carrying, program, expected));
      });
    });
  }

  test(`everything that left one daemon over ${wire} has come to the other`, async () => {
    assert.ok(world !== undefined);
    const { a, b } = world.daemons;
    const [here, there] = await Promise.all([a.status(), b.status()]);
    assert.ok(here.counters.bytesOut > 0 && here.counters.bytesIn > 0);
    assert.equal(here.counters.bytesOut, there.counters.bytesIn);
    assert.equal(here.counters.bytesIn, there.counters.bytesOut);
  });
}

for (const wire of ['shm', 'roce'] as const) {
  describe(`programs run unchanged when they are carried over ${wire}`, { concurrency: false }, () => {
    compareAll(wire, programs);
  });
}

describe('programs run unchanged when they are carried over tcp', { concurrency: false }, () => {
  compareAll(
    'tcp',
    programs.filter(({ run }) => run === tryRedis || run === tryRsync),
  );
});
