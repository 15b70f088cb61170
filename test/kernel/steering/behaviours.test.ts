// Tests that a connection behaves the same when it is steered to the relay as over plain TCP, behaviour by behaviour.
// Runs beside other files: it mostly waits.

import { after, before, describe } from 'node:test';
import { sweepDeadTests } from '../fixtures/lab-world.ts';
import { testBehaviours, testCrowds } from './behaviour-tests.ts';
import { BehavioursProgram } from './behaviours-program.ts';
import { SteeredWorld } from './steered-world.ts';

const program = new BehavioursProgram();
after(() => program[Symbol.dispose]());
before(sweepDeadTests);

describe('a steered connection behaves as over plain TCP', { concurrency: false }, () => {
  testBehaviours(program, () => SteeredWorld.create());
});

describe('crowds of steered connections fare as over plain TCP', { concurrency: false }, () => {
  testCrowds(program, () => SteeredWorld.create());
});
