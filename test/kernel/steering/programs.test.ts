// Tests that programs nobody here wrote run unchanged when their connections are steered, with the results of plain TCP.
// Runs beside other files: it mostly waits.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { sweepDeadTests } from '../fixtures/lab-world.ts';
import { type Program, programs } from './program-list.ts';
import { carryEverything, redirectEverything, SteeredWorld } from './steered-world.ts';
import { World } from './world.ts';

before(sweepDeadTests);

let plain: World | undefined;
before(async () => {
  plain = await World.create();
});
after(() => plain?.close());

/** By program: what it did over plain TCP. */
const expectations = new Map<string, unknown>();

async function expectationOf({ name, run }: Program): Promise<unknown> {
  assert.ok(plain !== undefined);
  if (!expectations.has(name)) expectations.set(name, await run(plain));
  return expectations.get(name);
}

/** Compares the programs' results in a world that is steered by those rules with those over plain TCP. */
function compareAll(chosen: readonly Program[], rules: typeof carryEverything): void {
  let steered: SteeredWorld | undefined;
  before(async () => {
    steered = await SteeredWorld.create(rules);
  });
  after(() => steered?.close());

  for (const program of chosen) {
    const { name, run, connections } = program;
    test(name, async (t) => {
      assert.ok(steered !== undefined);
      const expected = await expectationOf(program);
      const before = steered.carried();
      const redirectedBefore = steered.relays.a.redirected();
      const observed = await run(steered);
      assert.deepEqual(observed, expected);
      const carried = steered.carried() - before;
      assert.ok(carried >= connections, `only ${carried} connections were carried`);
      const redirected = steered.relays.a.redirected() - redirectedBefore;
      assert.equal(redirected > 0, rules === redirectEverything, `${redirected} messages were redirected`);
      t.diagnostic(`${carried} connections carried, ${redirected} messages redirected`);
    });
  }
}

describe('programs run unchanged when they are steered', { concurrency: false }, () => {
  compareAll(programs, carryEverything);
});

describe('programs built on event loops also run unchanged past TCP', { concurrency: false }, () => {
  compareAll(
    programs.filter(({ isEventLoop }) => isEventLoop === true),
    redirectEverything,
  );
});
