import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Rig } from '../../../test/conformance/rig.ts';
import { Model, REGION_BYTES } from './fixtures/model.ts';
import { narrow, rounds } from './fixtures/programs.ts';
import { runRound } from './fixtures/run-program.ts';
import { openSoftPair, wires } from './fixtures/soft-pair.ts';
const end = { sizeBytes: REGION_BYTES, attributes: { minRnrTimer: 1, timeout: 10, retryCount: 7 } };
for (const wire of wires) for (const plan of [{ drop: 0.05 }, { duplicate: 0.3 }, { delay: { rate: 0.2, maxMs: 1 }, drop: 0.03, duplicate: 0.1 }, {slowPeer: {oneTurnIn: 3}, drop: 0.02}])
  test(`${wire} ${JSON.stringify(plan)}`, async () => {
    let died = 0; let runs = 0;
    await fc.assert(fc.asyncProperty(rounds({ canFail: false, maxRounds: 4 }).map((p) => p.map(narrow)), fc.nat(1e6), async (program, seed) => {
      runs++;
      await using pair = openSoftPair(wire, { left: { seed, ...plan }, right: { seed: seed + 1, ...plan } });
      using rig = Rig.build(pair, { left: end, right: end });
      let dead = false;
      for (const e of [rig.left, rig.right]) e.device.events.on('qpFatal', ({reason}) => { if (!dead) console.log('WHY', reason); dead = true; });
      const model = new Model();
      for (const side of ['left', 'right'] as const) model.memory[side].set(rig[side].mr.bytes);
      for (const [index, round] of program.entries()) {
        const both = [{ ...round, from: 'left' as const }, { ...(program.at(-1 - index) ?? round), from: 'right' as const }];
        const expected = both.map((one) => model.run(one));
        let outs;
        try { outs = await Promise.all(both.map((one, at) => runRound(rig, one, expected[at]!))); } catch (e) { if (dead) { died++; return; } throw e; }
        if (dead) { died++; return; }
        for (const [at, o] of outs.entries()) { assert.deepEqual(o.sent, expected[at]!.sent); assert.deepEqual(o.received, expected[at]!.received); }
        for (const side of ['left', 'right'] as const) {
          const at = model.memory[side].findIndex((byte, place) => byte !== rig[side].mr.bytes[place]);
          assert.equal(at, -1, `${index}: byte ${at} ${side}`);
        }
      }
    }), { numRuns: 150, endOnFailure: true });
    console.log(wire, plan, 'died', died, 'of', runs);
  });
