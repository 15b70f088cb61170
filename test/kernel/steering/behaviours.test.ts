// Tests that a connection behaves the same when it is steered to the relay as over plain TCP, behaviour by behaviour.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { sweepDeadTests } from '../fixtures/lab-world.ts';
import { BehavioursProgram, type Observation } from './behaviours-program.ts';
import { connectDifferences } from './differences.ts';
import { comparable, type Family, families, Pair } from './pair.ts';

const program = new BehavioursProgram();
after(() => program[Symbol.dispose]());
before(sweepDeadTests);

const crowds: ReadonlySet<string> = new Set(['threads', 'short', 'burst', 'open']);
/** Connections that a behaviour makes to somebody who listens, where that is not one. */
const connections: Readonly<Record<string, number>> = {
  refused: 0,
  'nonblocking-refused': 0,
  reused: 3,
  threads: 400,
  short: 1000,
  burst: 10_000,
  open: 5000,
};
/** Of a listener that has just come or gone, the other host hears a moment later: these may go either way. */
const racing: ReadonlySet<string> = new Set(['passing-listener']);
/** Words of the program for what must not happen, whatever the way. */
const trouble = /timed out|WRONG|LOST|NOT |stuck|never|only \d+ bytes|nudge/;

/** What one side says after that word; mapped addresses as what they stand for. */
function endOf(said: string | null, word: string): { readonly host: string; readonly port: number } {
  const match = new RegExp(`${word} \\[?(?:::ffff:)?([0-9a-f.:]+?)\\]?:(\\d+)(?:,|$)`).exec(said ?? '');
  assert.ok(match, `${said} says nothing of '${word}'`);
  return { host: match[1] ?? '', port: Number(match[2]) };
}

async function compare(pair: Pair, name: string, family: Family): Promise<Observation> {
  const { plain, steered } = pair;
  const before = steered.world.carried();
  // One after the other: what takes long must not be held up by the other.
  const expected = await pair.observe(name, plain, family);
  const observed = await pair.observe(name, steered, family);
  const carried = steered.world.carried() - before;
  assert.doesNotMatch(`${expected.client} ${expected.server}`, trouble);
  assert.deepEqual(comparable(observed), comparable(connectDifferences[name] ?? expected));
  if (connectDifferences[name] !== undefined) assert.notDeepEqual(comparable(observed), comparable(expected));
  if (!racing.has(name)) assert.equal(carried, connections[name] ?? 1, 'connections that were carried');
  return observed;
}

describe('a steered connection behaves as over plain TCP', { concurrency: false }, () => {
  let pair: Pair;
  before(async () => {
    pair = await Pair.create(program);
  });
  after(() => pair[Symbol.asyncDispose]());

  for (const { name } of program.list.filter((behaviour) => !crowds.has(behaviour.name))) {
    const what = connectDifferences[name]?.what;
    for (const family of families) {
      test(`${name} over ${family}${what === undefined ? '' : `: ${what}`}`, async () => {
        await compare(pair, name, family);
      });
    }
  }

  test('a program that speaks IPv6 only reaches an IPv4 host, and sees mapped addresses', async () => {
    const { world, server } = pair.steered;
    const before = world.carried();
    const observed = await program.observe('addresses', world.a, server, `::ffff:${world.b.ipv4}`);
    assert.match(observed.client, /^local \[::ffff:10\.77\.0\.1\]:\d+, peer \[::ffff:10\.77\.0\.2\]:\d+$/);
    assert.equal(world.carried(), before + 1);
  });

  for (const family of families) {
    for (const name of ['addresses', 'addresses-bound', 'addresses-dual']) {
      test(`${name} over ${family}: both programs name the same two ends`, async () => {
        const { world, server } = pair.steered;
        const observed = await program.observe(name, world.a, server, world.b[family]);
        const client = endOf(observed.client, 'local');
        assert.equal(client.host, world.a[family]);
        assert.deepEqual(endOf(observed.server, 'accepted'), client);
        assert.deepEqual(endOf(observed.server, 'peer'), client);
        assert.deepEqual(endOf(observed.server, 'local'), endOf(observed.client, 'peer'));
        assert.equal(endOf(observed.client, 'peer').host, world.b[family]);
      });
    }
  }

  test('the relays end in order, and what they pinned is gone', () => pair.steered.world.stopRelays());
});

describe('crowds of steered connections fare as over plain TCP', { concurrency: false }, () => {
  for (const name of crowds) {
    for (const family of families) {
      test(`${name} over ${family}`, async (t) => {
        await using pair = await Pair.create(program);
        const { remarks } = await compare(pair, name, family);
        if (remarks !== '') t.diagnostic(remarks.replaceAll('\n', '; '));
      });
    }
  }
});
