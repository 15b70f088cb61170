// Tests that a connection between programs of one machine behaves the same when it is direct.

import { before } from 'node:test';
import { DirectWorld } from '../../../workbench/worlds/direct-world.ts';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { compareBehaviours } from './behaviours.ts';

before(sweepDeadTests);

compareBehaviours('socket behaviours with the library at both ends', (env) => DirectWorld.start({ env }));
