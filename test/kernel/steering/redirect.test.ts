// Tests of `connect` with `redirect`: what event loops need is as over plain TCP, and what differs is known.
// Runs beside other files: it mostly waits.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { sweepDeadTests } from '../fixtures/lab-world.ts';
import { BehavioursProgram } from './behaviours-program.ts';
import { redirectDifferences } from './differences.ts';
import { comparable, families, Pair } from './pair.ts';
import { redirectEverything, SteeredWorld } from './steered-world.ts';

before(sweepDeadTests);

/** Without those that read by blocking calls: such a call may return EAGAIN, and nobody can say when. */
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

describe('connect with redirect', { concurrency: false }, () => {
  const program = new BehavioursProgram();
  let pair: Pair<SteeredWorld>;
  before(async () => {
    pair = await Pair.create(program, () => SteeredWorld.create(redirectEverything));
  });
  after(async () => {
    await pair?.[Symbol.asyncDispose]();
    program[Symbol.dispose]();
  });

  for (const family of families) {
    for (const name of equal) {
      test(`${name} over ${family} is as over plain TCP`, async () => {
        const expected = await pair.observe(name, pair.plain, family);
        const observed = await pair.observe(name, pair.carrying, family);
        assert.deepEqual(comparable(observed), comparable(expected));
      });
    }
    for (const [name, { what, client, server }] of Object.entries(redirectDifferences)) {
      test(`${name} over ${family}: ${what}`, async () => {
        const observed = await pair.observe(name, pair.carrying, family);
        if (client !== null) assert.equal(observed.client, client);
        if (server !== null) assert.equal(observed.server, server);
      });
    }
  }

  test('messages really went past TCP', () => {
    assert.ok(pair.carrying.world.relays.a.redirected() > 1000);
  });
});
