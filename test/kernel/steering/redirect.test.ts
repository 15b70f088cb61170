// Tests of `connect` with `redirect`: what event loops need is as over plain TCP, programs built on
// them run unchanged, and what differs is known.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { unlessStarved } from '../../../workbench/worlds/carrying-world.ts';
import { redirectEverything } from '../../../workbench/worlds/daemon-process.ts';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { ProxyWorld } from '../../../workbench/worlds/proxy-world.ts';
import { BehavioursProgram } from './behaviours-program.ts';
import { together } from './compare.ts';
import { redirectDifferences } from './differences.ts';
import { comparable, families, Pair } from './pair.ts';
import { PlainRuns } from './plain-runs.ts';
import { programs } from './program-list.ts';

before(sweepDeadTests);

/**
 * Without those that read by blocking calls: such a call may return EAGAIN, and nobody can say
 * when.
 */
const equal = [
  'epoll-level',
  'epoll-edge',
  'epoll-level-out',
  'epoll-edge-out',
  'send-then-close',
  'reset-by-client',
  'reset-by-server',
  'reset-after-data',
  'epipe',
  'rdhup',
  'first-from-client',
  'first-from-server',
  'first-from-both',
  'addresses',
  'addresses-bound',
  'addresses-dual',
  'refused',
  'nonblocking',
  'retried',
  'reused',
  'options',
  'threads',
  'short',
];

const MOST_ATTEMPTS = 3;

/** Does again what a client that reads by blocking calls, as redis-cli, gave up with EAGAIN. */
async function unlessBlocking<T>(attempt: () => Promise<T>): Promise<T> {
  for (let attempts = 1; ; attempts++) {
    try {
      return await attempt();
    } catch (error) {
      if (attempts === MOST_ATTEMPTS || !String(error).includes('Resource temporarily unavailable')) throw error;
    }
  }
}

describe('connect with redirect', { concurrency: false }, () => {
  const program = new BehavioursProgram();
  let pair: Pair<ProxyWorld>;
  before(async () => {
    pair = await Pair.create(program, () => ProxyWorld.create({ rules: redirectEverything }));
  });
  after(() => pair?.[Symbol.asyncDispose]());
  const plain = new PlainRuns();
  after(() => plain[Symbol.asyncDispose]());

  const redirected = (): number => pair.carrying.world.daemons.a.redirected();

  function testBehaviours(isChosen: (name: string) => boolean): void {
    for (const family of families) {
      for (const name of equal.filter(isChosen)) {
        test(`${name} over ${family} is as over plain TCP`, async () => {
          const expected = await pair.observe(name, pair.plain, family);
          await unlessStarved(pair.carrying.world, async () => {
            const observed = await pair.observe(name, pair.carrying, family);
            assert.deepEqual(comparable(observed), comparable(expected));
          });
        });
      }
      for (const [name, { what, client, server }] of Object.entries(redirectDifferences)) {
        if (!isChosen(name)) continue;
        test(`${name} over ${family}: ${what}`, async () => {
          await unlessStarved(pair.carrying.world, async () => {
            const observed = await pair.observe(name, pair.carrying, family);
            if (client instanceof RegExp) assert.match(observed.client, client);
            else assert.equal(observed.client, client);
            if (server !== null) assert.equal(observed.server, server);
          });
        });
      }
    }
  }

  testBehaviours((name) => !Object.values(together).flat().includes(name));
  for (const [kind, names] of Object.entries(together)) {
    describe(`${kind}, at once`, { concurrency: true }, () => testBehaviours((name) => names.includes(name)));
  }

  test('messages of these connections went past TCP', () => {
    assert.ok(redirected() > 1000, `${redirected()} messages were redirected`);
  });

  for (const { name, run, connections } of programs.filter(({ isEventLoop }) => isEventLoop === true)) {
    test(`${name}, built on event loops, run unchanged`, async (t) => {
      const { world } = pair.carrying;
      const expected = await plain.resultOf(run);
      await unlessStarved(world, async () => {
        const [carriedBefore, redirectedBefore] = [world.carried(), redirected()];
        assert.deepEqual(await unlessBlocking(() => run(world)), expected);
        const carried = world.carried() - carriedBefore;
        const messages = redirected() - redirectedBefore;
        t.diagnostic(`${carried} connections carried, ${messages} messages redirected`);
        assert.ok(carried >= connections, `only ${carried} connections were carried`);
        // At least one in each direction of each connection.
        assert.ok(messages > 2 * connections, `only ${messages} messages were redirected`);
      });
    });
  }
});
