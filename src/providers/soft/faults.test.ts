// Fault plans of every kind: requests complete right, or the QP ends in ERR with a clean flush.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { Rig } from '../../../test/conformance/rig.ts';
import { drain, settle, until } from '../../../test/conformance/wait.ts';
import { type FaultPlan, openSoftDevice } from '../index.ts';
import {
  type Expected,
  Model,
  needsReceive,
  type Operation,
  type Range,
  REGION_BYTES,
  type Round,
  type Side,
  slotOf,
  totalBytes,
} from './fixtures/model.ts';
import { rounds } from './fixtures/programs.ts';
import { asExpected, postOperations, postReceives } from './fixtures/run-program.ts';
import { linkedWires, openSoftPair, type Wire, wires } from './fixtures/soft-pair.ts';

// 4.096 us times 2 to the 11th: 8 ms until a frame is taken for lost.
const end = { sizeBytes: REGION_BYTES, attributes: { minRnrTimer: 1, timeout: 11, retryCount: 7 } };
// On a busy machine it takes a while to meet.
const patient = { sizeBytes: REGION_BYTES, attributes: { timeout: 18 } };

/** All requests signalled: each is known to have happened, or not to be known. */
const program: fc.Arbitrary<Round> = rounds({ canFail: false, maxRounds: 1 }).map(([round]) => {
  const operations = (round?.operations ?? []).map((one) => ({ ...one, isSignaled: true }));
  return { from: round?.from ?? 'left', lateReceives: 0, operations };
});

interface Ran {
  readonly sent: readonly Expected[];
  readonly received: readonly Expected[];
  readonly isWhole: boolean;
}

const firstBytes = Uint8Array.from({ length: REGION_BYTES }, (_, at) => (at * 7 + (at >> 8)) & 0xff);

/** Runs a round under a plan: what completed must be right, and what did not must be flushed. */
async function runUnder(wire: Wire, plan: Omit<FaultPlan, 'seed'>, seed: number, round: Round): Promise<Ran> {
  await using pair = openSoftPair(wire, { left: { seed, ...plan }, right: { seed: seed + 1, ...plan } });
  using rig = Rig.build(pair, { left: end, right: end });
  const model = new Model();
  for (const side of ['left', 'right'] as const) {
    rig[side].mr.bytes.set(firstBytes);
    model.memory[side].set(firstBytes);
  }
  const expected = model.run(round);
  const [sender, receiver] = round.from === 'left' ? [rig.left, rig.right] : [rig.right, rig.left];
  postReceives(rig, round, 0, Number.POSITIVE_INFINITY);
  postOperations(rig, round);
  const sent = (await drain(sender.sendCq, round.operations.length)).map(asExpected);
  const done = sent.findIndex(({ status }) => status !== 'SUCCESS');
  const isWhole = done < 0;
  if (!isWhole) {
    assert.equal(sender.qp.state, 'ERR');
    receiver.qp.modify('ERR');
  }
  const received = (await drain(receiver.receiveCq, expected.received.length)).map(asExpected);
  assert.deepEqual([...(await settle(sender.sendCq, 2)), ...(await settle(receiver.receiveCq, 2))], []);
  checkCompletions(sent, expected.sent);
  checkCompletions(received, expected.received);
  checkMemory(rig, model, round, isWhole ? round.operations.length : done);
  return { sent, received, isWhole };
}

/** As expected up to some point; from there on an error and then flushes, in order. */
function checkCompletions(actual: readonly Expected[], expected: readonly Expected[]): void {
  const done = actual.findIndex(({ status }) => status !== 'SUCCESS');
  const successes = done < 0 ? actual.length : done;
  assert.deepEqual(actual.slice(0, successes), expected.slice(0, successes));
  for (const [index, { wrId, status }] of actual.entries()) {
    assert.equal(wrId, index);
    if (index > done && done >= 0) assert.equal(status, 'WR_FLUSH_ERR');
  }
}

/**
 * Every byte is as in the model, except where requests that did not complete may have left their
 * traces.
 */
function checkMemory(rig: Rig, model: Model, round: Round, done: number): void {
  const open = tracesOf(round, done);
  const other = round.from === 'left' ? 'right' : 'left';
  for (const side of [round.from, other] as const) {
    const actual = rig[side].mr.bytes;
    if (Buffer.compare(model.memory[side], actual) === 0) continue;
    for (const [at, byte] of model.memory[side].entries()) {
      if (byte === actual[at]) continue;
      const isOpen = open[side === round.from ? 'here' : 'there'].some(
        ({ offset, length }) => at >= offset && at < offset + length,
      );
      assert.ok(isOpen, `byte ${at} of the memory on the ${side satisfies Side} is wrong`);
    }
  }
}

function tracesOf({ operations }: Round, done: number): { here: Range[]; there: Range[] } {
  const here: Range[] = [];
  const there: Range[] = [];
  let receives = 0;
  for (const [index, operation] of operations.entries()) {
    const receive = needsReceive(operation) ? receives++ : 0;
    if (index < done) continue;
    if (operation.kind === 'send') there.push(slotOf(receive, operation));
    else if (operation.kind === 'write') there.push({ offset: operation.remote, length: totalBytes(operation) });
    else here.push(...operation.local);
    if (isAtomic(operation)) there.push({ offset: operation.remote, length: 8 });
  }
  return { here, there };
}

function isAtomic({ kind }: Operation): boolean {
  return kind === 'fetchAdd' || kind === 'compareSwap';
}

const plans: readonly (readonly [name: string, plan: Omit<FaultPlan, 'seed'>, isSurvivable: boolean])[] = [
  ['delay', { delay: { rate: 0.3, maxMs: 2 } }, true],
  ['duplication', { duplicate: 0.3 }, true],
  ['loss', { drop: 0.1 }, true],
  ['corruption', { corrupt: 0.1 }, false],
  ['a slow peer', { slowPeer: { oneTurnIn: 5 } }, true],
  ['disconnects', { disconnect: 0.1 }, false],
  ['everything at once', { drop: 0.05, duplicate: 0.1, corrupt: 0.05, delay: { rate: 0.1, maxMs: 1 } }, false],
];

describe('fault plans', () => {
  test('an invalid plan is refused', () => {
    const wrong: readonly FaultPlan[] = [
      { seed: 0.5 },
      { seed: 1, drop: 1.5 },
      { seed: 1, corrupt: -1 },
      { seed: 1, duplicate: Number.NaN },
      { seed: 1, delay: { rate: 2, maxMs: 1 } },
      { seed: 1, qpDeathAt: 0 },
      { seed: 1, slowPeer: { oneTurnIn: 0 } },
    ];
    for (const faults of wrong) {
      assert.throws(
        () => openSoftDevice({ wire: 'tcp', faults }),
        { code: 'MILLRACE_ERR_USAGE' },
        JSON.stringify(faults),
      );
    }
  });

  for (const wire of wires) {
    for (const [name, plan, isSurvivable] of plans) {
      // Packets have no connection that could be cut.
      if (wire === 'roce' && plan.disconnect !== undefined) continue;
      test(`over ${wire}, under ${name}, requests complete right or the QP ends in ERR with a clean flush`, async () => {
        let runs = 0;
        let wholes = 0;
        const property = fc.asyncProperty(program, fc.nat(1_000_000), async (round, seed) => {
          runs++;
          if ((await runUnder(wire, plan, seed, round)).isWhole) wholes++;
        });
        await fc.assert(property, { numRuns: 25 });
        assert.ok(wholes > (isSurvivable ? runs * 0.8 : 0), `${wholes} of ${runs} came through`);
      });
    }

    test(`over ${wire}, a QP fails at the request that its plan names, the same every time`, async () => {
      for (const deathAt of [1, 4, 10]) {
        for (let times = 0; times < 2; times++) {
          await using pair = openSoftPair(wire, { left: { seed: 1, qpDeathAt: deathAt } });
          using rig = Rig.build(pair, { left: patient, right: patient });
          const { left, right } = rig;
          left.receive(77, 0, 8);
          for (let wrId = 1; wrId <= 10; wrId++) {
            if (left.qp.state === 'ERR') break;
            left.post((batch) => batch.write(wrId, right.mr.address, right.mr.rkey).sge(...left.at(0, 8)));
            const status = wrId < deathAt ? 'SUCCESS' : 'WR_FLUSH_ERR';
            assert.deepEqual(await left.sentStatuses(), [`${wrId}:${status}`]);
          }
          assert.equal(left.qp.state, 'ERR');
          assert.deepEqual(await left.receivedStatuses(), ['77:WR_FLUSH_ERR']);
        }
      }
    });
  }

  for (const wire of linkedWires) {
    test(`over ${wire}, a connection that is cut ends the QPs at both ends`, async () => {
      await using pair = openSoftPair(wire, { left: { seed: 1, disconnect: 1 } });
      using rig = Rig.build(pair, { left: patient, right: patient });
      const { left, right } = rig;
      right.receive(1, 0, 8);
      left.post((batch) =>
        batch
          .send(2)
          .sge(...left.at(0, 8))
          .send(3),
      );
      assert.deepEqual(await left.sentStatuses(2), ['2:RETRY_EXC_ERR', '3:WR_FLUSH_ERR']);
      await until('the other end to detect it', () => right.qp.state === 'ERR');
      assert.deepEqual(await right.receivedStatuses(), ['1:WR_FLUSH_ERR']);
    });
  }
});
