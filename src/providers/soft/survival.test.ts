// Faults that retries make good: nothing of them may show, with both sides busy at once.

import { describe, test } from 'node:test';
import fc from 'fast-check';
import type { FaultPlan } from '../index.ts';
import { runBoth, startRun } from './fixtures/model-run.ts';
import { narrow, rounds } from './fixtures/programs.ts';
import { wires } from './fixtures/soft-pair.ts';

// Far below what seven retries survive.
const plans: readonly (readonly [name: string, plan: Omit<FaultPlan, 'seed'>])[] = [
  ['loss', { drop: 0.05 }],
  ['duplication', { duplicate: 0.3 }],
  ['delay, loss and duplication', { delay: { rate: 0.2, maxMs: 1 }, drop: 0.03, duplicate: 0.1 }],
  ['a slow peer and loss', { slowPeer: { oneTurnIn: 3 }, drop: 0.02 }],
];

// Packets are lost, damaged, doubled and overtaken on a network of packets only.
const packetPlans: typeof plans = [
  ['corruption', { corrupt: 0.05 }],
  ['reordering', { delay: { rate: 0.1, maxMs: 2 } }],
  [
    'loss, duplication, reordering and bit errors',
    { drop: 0.05, duplicate: 0.05, corrupt: 0.05, delay: { rate: 0.05, maxMs: 1 } },
  ],
];

// Half a second in all: the first request also waits for the two sides to meet, on a
// machine that may be busy.
const attributes = { timeout: 14, retryCount: 7 };
const programs = rounds({ canFail: false, maxRounds: 4 }).map((program) => program.map(narrow));

// They mostly wait for retries.
describe('faults that a QP survives', { concurrency: 8 }, () => {
  for (const wire of wires) {
    for (const [name, plan] of wire === 'roce' ? [...plans, ...packetPlans] : plans) {
      test(`over ${wire}, ${name} does not show in the bytes and completions of either side`, async () => {
        const property = fc.asyncProperty(programs, fc.nat(1_000_000), async (program, seed) => {
          await using run = startRun(wire, { attributes, faults: { seed, ...plan } });
          await runBoth(run, program);
        });
        await fc.assert(property, { numRuns: 20, endOnFailure: true });
      });
    }
  }
});
