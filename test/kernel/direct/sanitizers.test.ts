// Tests that the sanitizers' builds of the library find nothing while programs nobody here wrote
// are direct. curl and PostgreSQL hang with the sanitizers' runtimes alone, without the library.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { MirroredWorld } from '../../../workbench/worlds/mirrored-world.ts';
import { RunningProgram } from '../../../workbench/worlds/running-program.ts';
import { compile } from '../steering/compile.ts';
import { PlainRuns } from '../steering/plain-runs.ts';
import { tryRedis } from '../steering/programs/redis.ts';
import { tryMemcached } from './programs/memcached.ts';
import { Sanitized } from './sanitizers.ts';

before(sweepDeadTests);

const PORT = 7470;
const CONNECTIONS = 6;
const ROUNDS = 20;

describe('programs with a build of the library for a sanitizer', { concurrency: false }, () => {
  const plain = new PlainRuns();
  after(() => plain[Symbol.asyncDispose]());

  for (const [sanitizer, run] of [
    ['asan', tryRedis],
    ['asan', tryMemcached],
    ['tsan', tryRedis],
  ] as const) {
    test(`${sanitizer}: ${run.name}`, async () => {
      const expected = await plain.resultOf(run);
      using sanitized = new Sanitized(sanitizer);
      await using world = await MirroredWorld.start({ env: sanitized.env });
      assert.deepEqual(await run(world), expected);
      assert.ok((await world.promoted()) > 0, 'no connection was promoted');
      assert.equal(sanitized.reports(), '');
    });
  }
});

test('tsan: a program with a thread for each connection, while its daemon is killed', async () => {
  const program = compile([join(import.meta.dirname, 'steady/main.c')]);
  using sanitized = new Sanitized('tsan');
  await using world = await MirroredWorld.start({ env: sanitized.env });
  const server = RunningProgram.start(world.b, program, ['serve', String(PORT)]);
  await using _server = server;
  await world.listening(PORT);
  const words = ['call', world.b.ipv4, String(PORT), String(CONNECTIONS)];
  await using client = RunningProgram.start(world.a, program, words, { isWritable: true });
  const goOn = async (): Promise<void> => {
    for (let round = 0; round < ROUNDS; round++) {
      client.write('rest');
      await client.line(/^resting$/);
      client.write('go');
    }
  };
  await eventually('all are direct', async () => (await world.promoted()) >= CONNECTIONS);
  await goOn();
  await world.daemon('b').kill();
  await goOn();
  client.write('stop');
  assert.match(await client.line(/^exact/), /^exact [1-9]\d*$/);
  await client.exit();
  await server.close();
  assert.equal(sanitized.reports(), '');
});
