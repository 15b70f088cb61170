// Tests that the sanitizers' builds of the library find nothing while programs nobody here wrote
// are direct. curl and PostgreSQL hang with the sanitizers' runtimes alone, without the library.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { MirroredWorld } from '../../../workbench/worlds/mirrored-world.ts';
import { World } from '../../../workbench/worlds/world.ts';
import { tryRedis } from '../steering/programs/redis.ts';
import { tryMemcached } from './programs/memcached.ts';
import { Sanitized } from './sanitizers.ts';

before(sweepDeadTests);

describe('programs with a build of the library for a sanitizer', { concurrency: false }, () => {
  let plain: World;
  before(async () => {
    plain = await World.create();
  });
  after(() => plain?.close());

  for (const [sanitizer, run] of [
    ['asan', tryRedis],
    ['asan', tryMemcached],
    ['tsan', tryRedis],
  ] as const) {
    test(`${sanitizer}: ${run.name}`, async () => {
      const expected = await run(plain);
      using sanitized = new Sanitized(sanitizer);
      await using world = await MirroredWorld.start({ env: sanitized.env });
      assert.deepEqual(await run(world), expected);
      assert.ok((await world.promoted()) > 0, 'no connection was promoted');
      assert.equal(sanitized.reports(), '');
    });
  }
});
