// What a QP makes of the answers to its READs, and how it asks for them.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { reap } from '../../../../test/conformance/wait.ts';
import { addSequence, sequenceDistance } from '../sequence.ts';
import { pattern, psn, QpUnderTest } from './fixtures/qp-under-test.ts';
import type { Arrival } from './fixtures/raw-peer.ts';
import { addressOf, MTU, REMOTE, RKEY, remoteBytes, respond } from './fixtures/remote-memory.ts';
import { operations } from './opcode.ts';
import { syndromes } from './packet.ts';

const { ack } = syndromes;
const { sendOnly, readRequest, readResponseOnly, atomicAcknowledge, fetchAdd } = operations;

describe('RoCE read responses', () => {
  test('the answer to a READ goes to its memory, and completes it and what was before it', async () => {
    using tested = new QpUnderTest();
    const { end, rawPeer } = tested;
    end.post((batch) => {
      batch.send(1).sge(...end.at(0, 8));
      batch
        .read(2, REMOTE, RKEY)
        .sge(...end.at(0, 1000))
        .sge(...end.at(4096, 2 * MTU));
    });
    const request = await rawPeer.nextPsn(psn(1), readRequest);
    assert.deepEqual([addressOf(request), request.rkey, request.dmaLength], [REMOTE, RKEY, 1000 + 2 * MTU]);
    respond(rawPeer, request);
    assert.deepEqual(await end.sentStatuses(2), ['1:SUCCESS', '2:SUCCESS']);
    assert.deepEqual(end.bytes(0, 1000), remoteBytes(REMOTE, 1000));
    assert.deepEqual(end.bytes(4096, 2 * MTU), remoteBytes(REMOTE + 1000, 2 * MTU));
    // The numbers of the answer are taken.
    end.post((batch) => batch.send(3).sge(...end.at(0, 8)));
    await rawPeer.nextPsn(psn(4), sendOnly);
  });

  test('when a part of the answer to a READ is lost, it is asked for from there on', async () => {
    using tested = new QpUnderTest();
    const { end, rawPeer } = tested;
    const bytes = 6 * MTU + 17;
    end.post((batch) =>
      batch
        .read(1, REMOTE, RKEY)
        .sge(...end.at(0, bytes))
        .send(2)
        .sge(...end.at(0, 0)),
    );
    respond(rawPeer, await rawPeer.nextPsn(psn(0), readRequest), [psn(2)]);
    const again = await rawPeer.nextPsn(psn(2), readRequest);
    assert.deepEqual([addressOf(again), again.dmaLength], [REMOTE + 2 * MTU, bytes - 2 * MTU]);
    assert.deepEqual(reap(end.sendCq), []);
    respond(rawPeer, again);
    rawPeer.acknowledge(psn(7));
    assert.deepEqual(await end.sentStatuses(2), ['1:SUCCESS', '2:SUCCESS']);
    assert.deepEqual(end.bytes(0, bytes), remoteBytes(REMOTE, bytes));
  });

  test('an acknowledgement that skips the answer to a READ or an atomic makes it ask again', async () => {
    using tested = new QpUnderTest();
    const { end, rawPeer } = tested;
    end.post((batch) =>
      batch
        .read(1, REMOTE, RKEY)
        .sge(...end.at(0, 8))
        .send(2)
        .sge(...end.at(0, 8)),
    );
    await rawPeer.nextPsn(psn(1));
    rawPeer.acknowledge(psn(1));
    respond(rawPeer, await rawPeer.nextPsn(psn(0), readRequest));
    await rawPeer.nextPsn(psn(1));
    rawPeer.acknowledge(psn(1));
    assert.deepEqual(await end.sentStatuses(2), ['1:SUCCESS', '2:SUCCESS']);
    end.post((batch) =>
      batch
        .fetchAdd(3, REMOTE, RKEY, 1)
        .sge(...end.at(0, 8))
        .send(4)
        .sge(...end.at(0, 8)),
    );
    await rawPeer.nextPsn(psn(3));
    rawPeer.acknowledge(psn(3));
    await rawPeer.nextPsn(psn(2), fetchAdd);
    rawPeer.send({ opcode: atomicAcknowledge, psn: psn(2), syndrome: ack });
    rawPeer.acknowledge(psn(3));
    assert.deepEqual(await end.sentStatuses(2), ['3:SUCCESS', '4:SUCCESS']);
  });

  for (const [name, opcode, payloadBytes] of [
    ['shorter', readResponseOnly, 7],
    ['longer', readResponseOnly, 9],
    ['empty', readResponseOnly, 0],
  ] as const) {
    test(`an answer to a READ that is ${name} than it should be is BAD_RESP_ERR`, async () => {
      using tested = new QpUnderTest();
      const { end, rawPeer } = tested;
      end.bytes(0, 64).fill(0xee);
      end.post((batch) => batch.read(1, REMOTE, RKEY).sge(...end.at(0, 8)));
      await rawPeer.nextPsn(psn(0), readRequest);
      rawPeer.send({ opcode, psn: psn(0), syndrome: ack }, pattern(payloadBytes));
      assert.deepEqual(await end.sentStatuses(), ['1:BAD_RESP_ERR']);
      assert.ok(end.bytes(0, 64).every((byte) => byte === 0xee));
    });
  }

  test('answers of the wrong kind, or without a request, are ignored', async () => {
    using tested = new QpUnderTest();
    const { end, rawPeer } = tested;
    end.bytes(0, 64).fill(0xee);
    rawPeer.send({ opcode: readResponseOnly, psn: psn(0), syndrome: ack }, pattern(8));
    rawPeer.send({ opcode: atomicAcknowledge, psn: psn(0), syndrome: ack });
    end.post((batch) =>
      batch
        .send(1)
        .sge(...end.at(0, 8))
        .read(2, REMOTE, RKEY)
        .sge(...end.at(8, 8)),
    );
    await rawPeer.nextPsn(psn(1), readRequest);
    rawPeer.send({ opcode: readResponseOnly, psn: psn(0), syndrome: ack }, pattern(8));
    rawPeer.send({ opcode: atomicAcknowledge, psn: psn(1), syndrome: ack });
    rawPeer.send({ opcode: readResponseOnly, psn: psn(2), syndrome: ack }, pattern(8));
    await rawPeer.settled(20);
    assert.ok(end.bytes(0, 64).every((byte) => byte === 0xee));
    assert.equal(end.qp.state, 'RTS');
    rawPeer.send({ opcode: readResponseOnly, psn: psn(1), syndrome: ack }, pattern(8));
    assert.deepEqual(await end.sentStatuses(2), ['1:SUCCESS', '2:SUCCESS']);
    // Once more, after it was taken.
    rawPeer.send({ opcode: readResponseOnly, psn: psn(1), syndrome: ack }, pattern(8, 1));
    await rawPeer.settled(20);
    assert.deepEqual(end.bytes(8, 8), pattern(8));
  });

  for (const [maxRdAtomic, lostAt] of [
    [1, 60],
    [4, 60],
    [4, 100],
    [16, 3],
  ] as const) {
    test(`a long READ is asked for in parts that never change (${maxRdAtomic} at once, packet ${lostAt} lost)`, async () => {
      const bytes = 400 * MTU + 3;
      using tested = new QpUnderTest({ sizeBytes: 1 << 19, attributes: { maxRdAtomic } });
      const { end, rawPeer } = tested;
      end.post((batch) => batch.read(1, REMOTE, RKEY).sge(...end.at(0, bytes)));
      /** One past what was asked for so far; where parts end. */
      let expected = psn(0);
      const ends: number[] = [];
      let hasLost = false;
      const onRequest = (request: Arrival): void => {
        assert.equal(request.opcode, readRequest);
        assert.equal(addressOf(request), REMOTE + sequenceDistance(request.psn, psn(0)) * MTU);
        const partEnd = addSequence(request.psn, Math.ceil(request.dmaLength / MTU));
        if (request.psn === expected) expected = partEnd;
        // A peer remembers what it was asked; half of one part and half of another is nothing it
        // knows.
        assert.ok(sequenceDistance(partEnd, expected) <= 0, 'a gap');
        const across = ends.find((one) => sequenceDistance(one, request.psn) > 0 && sequenceDistance(partEnd, one) > 0);
        assert.equal(across, undefined, `from ${request.psn} to ${partEnd}`);
        ends.push(partEnd);
        const isLossy = !hasLost && sequenceDistance(partEnd, psn(lostAt)) > 0;
        if (isLossy) hasLost = true;
        respond(rawPeer, request, isLossy ? [psn(lostAt)] : []);
      };
      let completions = reap(end.sendCq);
      for (; completions.length === 0; completions = reap(end.sendCq)) {
        for (const request of await rawPeer.settled(1)) onRequest(request);
      }
      assert.ok(hasLost);
      assert.equal(completions[0]?.status, 'SUCCESS');
      assert.deepEqual(end.bytes(0, bytes), remoteBytes(REMOTE, bytes));
    });
  }

  test('no more READs and atomics are under way than were agreed on', async () => {
    using tested = new QpUnderTest({ attributes: { maxRdAtomic: 2 } });
    const { end, rawPeer } = tested;
    end.post((batch) => {
      for (let wrId = 0; wrId < 5; wrId++) batch.read(wrId, REMOTE, RKEY).sge(...end.at(wrId * 8, 8));
    });
    for (let index = 0; index < 5; index += 2) {
      const requests = [
        await rawPeer.nextPsn(psn(index)),
        ...(index < 4 ? [await rawPeer.nextPsn(psn(index + 1))] : []),
      ];
      const more = await rawPeer.settled(5);
      assert.ok(more.every((one) => sequenceDistance(one.psn, psn(index + 2)) < 0));
      for (const request of requests) respond(rawPeer, request);
    }
    assert.equal((await end.sentStatuses(5)).length, 5);
  });
});
