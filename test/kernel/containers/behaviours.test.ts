// Tests that a connection between two containers behaves the same when daemons carry it as over
// plain TCP, behaviour by behaviour.

import { before, describe } from 'node:test';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { ProxyWorld } from '../../../workbench/worlds/proxy-world.ts';
import { testBehaviours } from '../steering/behaviour-tests.ts';
import { BehavioursProgram } from '../steering/behaviours-program.ts';

const program = new BehavioursProgram();
before(sweepDeadTests);

describe('a connection between containers that is carried behaves as over plain TCP', { concurrency: false }, () => {
  testBehaviours(program, () => ProxyWorld.create({ hasPods: true }), { hasPods: true });
});
