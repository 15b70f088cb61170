// Random requests on both wires and on the model: memory and completions must be the same, byte for
// byte.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import type { Round } from './fixtures/model.ts';
import { compareMemory, runBoth, startRun } from './fixtures/model-run.ts';
import { narrow, rounds } from './fixtures/programs.ts';
import { runRound } from './fixtures/run-program.ts';
import { type Wire, wires } from './fixtures/soft-pair.ts';

/** Runs the rounds on a wire, and after each compares memory and completions with the model's. */
async function runOn(wire: Wire, program: readonly Round[]): Promise<void> {
  await using run = startRun(wire);
  const { rig, model } = run;
  for (const [index, round] of program.entries()) {
    const when = `${wire}, round ${index}`;
    const expected = model.run(round);
    const { sent, received } = await runRound(rig, round, expected);
    assert.deepEqual(sent, expected.sent, `${when}: completions of requests`);
    assert.deepEqual(received, expected.received, `${when}: completions of receives`);
    const slot = expected.undefinedSlot;
    if (slot !== undefined) {
      const side = round.from === 'left' ? 'right' : 'left';
      const kept = model.memory[side].subarray(slot.offset, slot.offset + slot.length);
      rig[side].bytes(slot.offset, slot.length).set(kept);
    }
    compareMemory(run, when);
  }
}

describe('the soft device and the model', () => {
  for (const wire of wires) {
    test(`any requests leave the same bytes and completions on ${wire} as in the model`, async () => {
      await fc.assert(
        fc.asyncProperty(rounds({ canFail: true, maxRounds: 6 }), (program) => runOn(wire, program)),
        { numRuns: 100 },
      );
    });

    test(`requests of both sides at once leave the same bytes and completions on ${wire} as in the model`, async () => {
      const programs = rounds({ canFail: false, maxRounds: 6 }).map((program) => program.map(narrow));
      await fc.assert(
        fc.asyncProperty(programs, async (program) => {
          await using run = startRun(wire);
          await runBoth(run, program);
        }),
        { numRuns: 60 },
      );
    });
  }
});
