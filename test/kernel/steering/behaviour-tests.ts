// The tests that a connection behaves the same when it is carried, behaviour by behaviour, whoever
// carries it.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { CarryingWorld } from '../../../workbench/worlds/carrying-world.ts';
import type { PlainOptions } from '../../../workbench/worlds/world.ts';
import type { BehavioursProgram } from './behaviours-program.ts';
import { carriedAll, compare, compareCarried, connectionsOf, crowds, together } from './compare.ts';
import { connectDifferences } from './differences.ts';
import { type Family, families, Pair } from './pair.ts';

export type MakeWorld = () => Promise<CarryingWorld>;

/** What one side says after that word; mapped addresses as what they stand for. */
function endOf(said: string | null, word: string): { readonly host: string; readonly port: number } {
  const match = new RegExp(`${word} \\[?(?:::ffff:)?([0-9a-f.:]+?)\\]?:(\\d+)(?:,|$)`).exec(said ?? '');
  assert.ok(match, `${said} says nothing of '${word}'`);
  return { host: match[1] ?? '', port: Number(match[2]) };
}

/** Inside a suite: all behaviours in one pair of worlds, those that only wait at once. */
export function testBehaviours(
  program: BehavioursProgram,
  makeWorld: MakeWorld,
  plainOptions: PlainOptions = {},
): void {
  let pair: Pair<CarryingWorld>;
  before(async () => {
    pair = await Pair.create(program, makeWorld, plainOptions);
  });
  after(() => pair[Symbol.asyncDispose]());

  const each = (names: readonly string[], check: (name: string, family: Family) => Promise<unknown>): void => {
    for (const name of names) {
      const what = connectDifferences[name]?.what;
      for (const family of families) {
        test(`${name} over ${family}${what === undefined ? '' : `: ${what}`}`, async () => {
          await check(name, family);
        });
      }
    }
  };

  const chosen = program.list.map(({ name }) => name).filter((name) => !crowds.has(name));
  const grouped = new Set(Object.values(together).flat());
  each(
    chosen.filter((name) => !grouped.has(name)),
    (name, family) => compareCarried(pair, name, family),
  );

  for (const [kind, names] of Object.entries(together)) {
    describe(`${kind}, at once`, { concurrency: false }, () => {
      let earlier: { readonly carried: number; readonly starved: number };
      if (plainOptions.hasPods === true) {
        describe('while the daemons learn the ways', { concurrency: true }, () => {
          each(names, (name, family) => pair.observe(name, pair.carrying, family));
        });
      }
      describe('each as over plain TCP', { concurrency: true }, () => {
        before(() => {
          const { world } = pair.carrying;
          earlier = { carried: world.carried(), starved: world.starved() };
        });
        each(names, (name, family) => compare(pair, name, family));
      });
      test('all of their connections were carried', () => {
        const expected = families.length * names.reduce((sum, name) => sum + connectionsOf(name), 0);
        const { world } = pair.carrying;
        const carried = world.carried() - earlier.carried;
        const starved = world.starved() - earlier.starved;
        if (starved === 0) assert.equal(carried, expected);
        // Some were tried again.
        else assert.ok(carried + starved >= expected, `${carried} carried, ${starved} not`);
      });
    });
  }

  test('a program that speaks IPv6 only reaches an IPv4 host, and sees mapped addresses', async () => {
    const { world, server } = pair.carrying;
    const { clientHost, serverHost } = world;
    const observed = await carriedAll(world, 1, () =>
      program.observe('addresses', clientHost, server, `::ffff:${serverHost.ipv4}`),
    );
    const mapped = observed.client.replaceAll(/:\d+(?=,|$)/g, '');
    assert.equal(mapped, `local [::ffff:${clientHost.ipv4}], peer [::ffff:${serverHost.ipv4}]`);
  });

  for (const family of families) {
    for (const name of ['addresses', 'addresses-bound', 'addresses-dual']) {
      test(`${name} over ${family}: both programs name the same two ends`, async () => {
        const { world, server } = pair.carrying;
        const observed = await program.observe(name, world.clientHost, server, world.serverHost[family]);
        const client = endOf(observed.client, 'local');
        assert.equal(client.host, world.clientHost[family]);
        assert.deepEqual(endOf(observed.server, 'accepted'), client);
        assert.deepEqual(endOf(observed.server, 'peer'), client);
        assert.deepEqual(endOf(observed.server, 'local'), endOf(observed.client, 'peer'));
        assert.equal(endOf(observed.client, 'peer').host, world.serverHost[family]);
      });
    }
  }

  test('the daemons end in order, and what they pinned is gone', () => pair.carrying.world.stop());
}

/** Inside a suite: crowds of connections, one after the other in a pair of worlds of their own. */
export function testCrowds(program: BehavioursProgram, makeWorld: MakeWorld, chosen: readonly string[]): void {
  describe(chosen.join(', '), { concurrency: false }, () => {
    let pair: Pair<CarryingWorld>;
    before(async () => {
      pair = await Pair.create(program, makeWorld);
    });
    after(() => pair[Symbol.asyncDispose]());

    for (const name of chosen) {
      for (const family of families) {
        test(`${name} over ${family}`, async (t) => {
          const { remarks } = await compareCarried(pair, name, family);
          if (remarks !== '') t.diagnostic(remarks.replaceAll('\n', '; '));
        });
      }
    }
  });
}
