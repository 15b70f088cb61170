import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { Rig } from '../../../test/conformance/rig.ts';
import { Model, type Outcome, REGION_BYTES, type Round } from './fixtures/model.ts';
import { narrow, rounds } from './fixtures/programs.ts';
import { runRound } from './fixtures/run-program.ts';
import { openSoftPair, type Wire, wires } from './fixtures/soft-pair.ts';

const end = { sizeBytes: REGION_BYTES, attributes: { minRnrTimer: 1 } };

const empty: Outcome = { sent: [], received: [], hasFailed: false };

interface Run extends AsyncDisposable {
  readonly rig: Rig;
  readonly model: Model;
}

/** A rig and a model with the same bytes in memory. */
function start(wire: Wire): Run {
  const pair = openSoftPair(wire);
  const rig = Rig.build(pair, { left: end, right: end });
  const model = new Model();
  for (const side of ['left', 'right'] as const) {
    const { bytes } = rig[side].mr;
    // The first words of the target area stay zero, so that a compare finds what it looks for now and then.
    for (let at = 0; at < bytes.length; at++) if (at < 4096 || at >= 4160) bytes[at] = (at * 7 + (at >> 8)) & 0xff;
    model.memory[side].set(bytes);
  }
  return {
    rig,
    model,
    async [Symbol.asyncDispose]() {
      rig[Symbol.dispose]();
      await pair[Symbol.asyncDispose]();
    },
  };
}

function compareMemory({ rig, model }: Run, when: string): void {
  for (const side of ['left', 'right'] as const) {
    const at = model.memory[side].findIndex((byte, place) => byte !== rig[side].mr.bytes[place]);
    assert.equal(at, -1, `${when}: byte ${at} of the memory on the ${side}`);
  }
}

/** Runs the rounds on a wire, and after each compares memory and completions with the model's. */
async function runOn(wire: Wire, program: readonly Round[]): Promise<void> {
  await using run = start(wire);
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

/** Both sides at once: what one does must not show in what the other does. */
async function runBoth(wire: Wire, program: readonly Round[]): Promise<void> {
  await using run = start(wire);
  for (const [index, round] of program.entries()) {
    const both = [
      { ...round, from: 'left' as const },
      { ...(program.at(-1 - index) ?? round), from: 'right' as const },
    ];
    const expected = both.map((one) => run.model.run(one));
    const outcomes = await Promise.all(both.map((one, at) => runRound(run.rig, one, expected[at] ?? empty)));
    for (const [at, { sent, received }] of outcomes.entries()) {
      assert.deepEqual(sent, expected[at]?.sent, `${wire}, round ${index}: completions of requests`);
      assert.deepEqual(received, expected[at]?.received, `${wire}, round ${index}: completions of receives`);
    }
    compareMemory(run, `${wire}, round ${index}`);
  }
}

describe('the soft device and the model', () => {
  for (const wire of wires) {
    test(`any requests leave the same bytes and completions on ${wire} as in the model`, async () => {
      await fc.assert(
        fc.asyncProperty(rounds({ canFail: true, maxRounds: 6 }), (program) => runOn(wire, program)),
        { numRuns: 150 },
      );
    });

    test(`requests of both sides at once leave the same bytes and completions on ${wire} as in the model`, async () => {
      const programs = rounds({ canFail: false, maxRounds: 6 }).map((program) => program.map(narrow));
      await fc.assert(
        fc.asyncProperty(programs, (program) => runBoth(wire, program)),
        { numRuns: 100 },
      );
    });
  }
});
