// Tests that a connection behaves the same when daemons carry it between two hosts as over plain
// TCP, behaviour by behaviour.

import { before, describe } from 'node:test';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { ProxyWorld } from '../../../workbench/worlds/proxy-world.ts';
import { testBehaviours, testCrowds } from '../steering/behaviour-tests.ts';
import { BehavioursProgram } from '../steering/behaviours-program.ts';

const program = new BehavioursProgram();
before(sweepDeadTests);

for (const wire of ['shm', 'roce'] as const) {
  describe(`a connection that is carried over ${wire} behaves as over plain TCP`, { concurrency: false }, () => {
    testBehaviours(program, () => ProxyWorld.create({ wire }));
  });
}

// Those that are open all at once have a test of their own, with two lanes.
describe('crowds of carried connections fare as over plain TCP', { concurrency: false }, () => {
  testCrowds(program, () => ProxyWorld.create(), ['threads', 'short']);
  testCrowds(program, () => ProxyWorld.create({ wire: 'roce' }), ['burst']);
});
