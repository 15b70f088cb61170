// Tests that programs nobody here wrote run unchanged when their connections are steered, with the results of plain TCP.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { sweepDeadTests } from '../fixtures/lab-world.ts';
import { BehavioursProgram } from './behaviours-program.ts';
import { tryIperf } from './programs/iperf.ts';
import { tryNginx } from './programs/nginx.ts';
import { tryNodeHttp } from './programs/node-http.ts';
import { tryPostgres } from './programs/postgres.ts';
import { tryRedis } from './programs/redis.ts';
import { tryRsync } from './programs/rsync.ts';
import { carryEverything, redirectEverything, SteeredWorld } from './steered-world.ts';
import { World } from './world.ts';

before(sweepDeadTests);

interface Program {
  readonly name: string;
  readonly run: (world: World) => Promise<unknown>;
  /** Fewer than this were not all of its connections. */
  readonly connections: number;
  /** It never blocks in a call on a socket. */
  readonly isEventLoop?: boolean;
}

const programs: readonly Program[] = [
  { name: 'redis with redis-cli and redis-benchmark', run: tryRedis, connections: 270, isEventLoop: true },
  { name: 'nginx with curl and wrk', run: tryNginx, connections: 54, isEventLoop: true },
  { name: 'PostgreSQL with psql and pgbench', run: tryPostgres, connections: 18 },
  { name: 'iperf3 up, down and both ways', run: tryIperf, connections: 15 },
  { name: 'rsync of a tree', run: tryRsync, connections: 3 },
  { name: 'Node with HTTP/1.1 and HTTP/2', run: tryNodeHttp, connections: 42, isEventLoop: true },
  { name: 'a statically linked program', run: tryStatic, connections: 6 },
];

async function tryStatic(world: World): Promise<unknown> {
  using program = new BehavioursProgram('static');
  await using server = await program.serve(world.b);
  await world.listening(7303);
  const results = [];
  for (const name of ['bulk', 'half-close', 'epoll-edge']) {
    for (const address of [world.b.ipv4, world.b.ipv6]) {
      const { client, server: told } = await program.observe(name, world.a, server, address);
      results.push({ name, client, told });
    }
  }
  return results;
}

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
