// What a QP sends, packet by packet, and what it makes of acknowledgements.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { reap, settle } from '../../../../test/conformance/wait.ts';
import { sendFlags } from '../../index.ts';
import { addSequence } from '../sequence.ts';
import { pattern, psn, QpUnderTest, RAW_PEER_QP } from './fixtures/qp-under-test.ts';
import type { Arrival } from './fixtures/raw-peer.ts';
import { addressOf, MTU, REMOTE, RKEY } from './fixtures/remote-memory.ts';
import { operations } from './opcode.ts';
import { nakCodes, syndromes } from './packet.ts';

const { ack, nak, rnrNak } = syndromes;
const { sendFirst, sendMiddle, sendLast, sendOnly, sendLastWithImm } = operations;
const { writeFirst, writeMiddle, writeLast, writeOnly, writeOnlyWithImm } = operations;
const { acknowledge, atomicAcknowledge, fetchAdd, compareSwap } = operations;

describe('RoCE requester', () => {
  test('a SEND is cut into packets of the MTU, over the end of the numbers', async () => {
    using tested = new QpUnderTest();
    const { end, rawPeer } = tested;
    const data = pattern(3 * MTU + 10);
    end.bytes(0, data.length).set(data);
    const flags = sendFlags.signaled | sendFlags.solicited;
    end.post((batch) => batch.sendWithImm(1, 0xcafe_f00d, flags).sge(...end.at(0, data.length)));
    const came: Arrival[] = [];
    for (let index = 0; index < 4; index++) came.push(await rawPeer.next('a packet'));
    assert.deepEqual(
      came.map((one) => [one.opcode, one.psn, one.isAckRequested, one.isSolicited, one.destQp]),
      [
        [sendFirst, psn(0), false, false, RAW_PEER_QP],
        [sendMiddle, psn(1), false, false, RAW_PEER_QP],
        [sendMiddle, psn(2), false, false, RAW_PEER_QP],
        [sendLastWithImm, psn(3), true, true, RAW_PEER_QP],
      ],
    );
    assert.equal(came[3]?.imm, 0xcafe_f00d);
    assert.deepEqual(new Uint8Array(Buffer.concat(came.map(({ payload }) => payload))), data);
    rawPeer.acknowledge(psn(3));
    assert.deepEqual(await end.sentStatuses(), ['1:SUCCESS']);
  });

  test('a WRITE says at its start where to, under which key and how much', async () => {
    using tested = new QpUnderTest();
    const { end, rawPeer } = tested;
    end.post((batch) => {
      batch.write(1, REMOTE, RKEY).sge(...end.at(0, 2 * MTU + 1));
      batch.writeWithImm(2, REMOTE + 5, RKEY, 77).sge(...end.at(0, 3));
      batch.write(3, REMOTE, RKEY);
    });
    const first = await rawPeer.nextPsn(psn(0));
    assert.deepEqual(
      [first.opcode, addressOf(first), first.rkey, first.dmaLength],
      [writeFirst, REMOTE, RKEY, 2 * MTU + 1],
    );
    assert.equal((await rawPeer.nextPsn(psn(1))).opcode, writeMiddle);
    const last = await rawPeer.nextPsn(psn(2));
    assert.deepEqual([last.opcode, last.payloadBytes, last.padBytes, last.isAckRequested], [writeLast, 1, 3, true]);
    const only = await rawPeer.nextPsn(psn(3));
    assert.deepEqual([only.opcode, addressOf(only), only.dmaLength, only.imm], [writeOnlyWithImm, REMOTE + 5, 3, 77]);
    const empty = await rawPeer.nextPsn(psn(4));
    assert.deepEqual([empty.opcode, empty.dmaLength, empty.payloadBytes], [writeOnly, 0, 0]);
    rawPeer.acknowledge(psn(4));
    assert.deepEqual(await end.sentStatuses(3), ['1:SUCCESS', '2:SUCCESS', '3:SUCCESS']);
  });

  test('atomics carry their operands, and what was there comes back', async () => {
    using tested = new QpUnderTest();
    const { end, rawPeer } = tested;
    end.post((batch) => {
      batch.fetchAdd(1, REMOTE, RKEY, 2, 3).sge(...end.at(0, 8));
      batch.compareSwap(2, REMOTE + 8, RKEY, 4, 5, 6, 7).sge(...end.at(8, 8));
    });
    const add = await rawPeer.nextPsn(psn(0), fetchAdd);
    assert.deepEqual([addressOf(add), add.rkey, add.swapLow, add.swapHigh], [REMOTE, RKEY, 2, 3]);
    const swap = await rawPeer.nextPsn(psn(1), compareSwap);
    const { compareLow, compareHigh, swapLow, swapHigh } = swap;
    assert.deepEqual([addressOf(swap), compareLow, compareHigh, swapLow, swapHigh], [REMOTE + 8, 4, 5, 6, 7]);
    for (const index of [0, 1]) {
      rawPeer.send({ opcode: atomicAcknowledge, psn: psn(index), syndrome: ack, originalHigh: 9, originalLow: index });
    }
    assert.deepEqual(await end.sentStatuses(2), ['1:SUCCESS', '2:SUCCESS']);
    assert.deepEqual([...new Uint32Array(end.bytes(0, 16).slice().buffer)], [0, 9, 1, 9]);
  });

  test('one acknowledgement completes all requests before it, in order', async () => {
    using tested = new QpUnderTest();
    const { end, rawPeer } = tested;
    end.post((batch) => {
      for (let wrId = 0; wrId < 6; wrId++) batch.send(wrId).sge(...end.at(0, 8));
    });
    await rawPeer.nextPsn(psn(5));
    rawPeer.acknowledge(psn(4));
    const statuses = ['0:SUCCESS', '1:SUCCESS', '2:SUCCESS', '3:SUCCESS', '4:SUCCESS'];
    assert.deepEqual(await end.sentStatuses(5), statuses);
    assert.deepEqual(reap(end.sendCq), []);
    rawPeer.acknowledge(psn(5));
    assert.deepEqual(await end.sentStatuses(), ['5:SUCCESS']);
  });

  test('an acknowledgement of what was never sent, or long ago, or of an unknown kind is ignored', async () => {
    using tested = new QpUnderTest();
    const { end, rawPeer } = tested;
    end.post((batch) => batch.send(1).sge(...end.at(0, 8)));
    await rawPeer.nextPsn(psn(0));
    for (const [number, syndrome] of [
      [psn(1), ack],
      [psn(5), ack],
      [psn(0x70_0000), ack],
      [psn(-1), ack],
      [psn(5), nak | nakCodes.invalid],
      [psn(-1), nak | nakCodes.invalid],
      [psn(-1), rnrNak | 1],
      [psn(0), 0x41],
    ] as const) {
      rawPeer.acknowledge(number, syndrome);
    }
    assert.deepEqual(await settle(end.sendCq, 50), []);
    assert.equal(end.qp.state, 'RTS');
    rawPeer.acknowledge(psn(0));
    assert.deepEqual(await end.sentStatuses(), ['1:SUCCESS']);
  });

  for (const [code, status] of [
    [nakCodes.invalid, 'REM_INV_REQ_ERR'],
    [nakCodes.access, 'REM_ACCESS_ERR'],
    [nakCodes.operation, 'REM_OP_ERR'],
  ] as const) {
    test(`a refusal with code ${code} is ${status}, after what came before it has completed`, async () => {
      using tested = new QpUnderTest();
      const { end, rawPeer } = tested;
      end.post((batch) => {
        for (let wrId = 0; wrId < 3; wrId++) batch.send(wrId).sge(...end.at(0, 2 * MTU));
      });
      await rawPeer.nextPsn(psn(5));
      // The second packet of the second request.
      rawPeer.acknowledge(psn(3), nak | code);
      assert.deepEqual(await end.sentStatuses(3), ['0:SUCCESS', `1:${status}`, '2:WR_FLUSH_ERR']);
      assert.equal(end.qp.state, 'ERR');
    });
  }

  test('a message that is under way when its send queue is drained goes on, and what is lost is sent again', async () => {
    using tested = new QpUnderTest();
    const { end, rawPeer } = tested;
    end.post((batch) =>
      batch
        .send(1)
        .sge(...end.at(0, 2 * MTU))
        .send(2)
        .sge(...end.at(0, 8)),
    );
    await rawPeer.nextPsn(psn(2));
    end.qp.modify('SQD');
    end.post((batch) => batch.send(3).sge(...end.at(0, 8)));
    rawPeer.acknowledge(psn(1), nak | nakCodes.sequence);
    assert.equal((await rawPeer.nextPsn(psn(1))).opcode, sendLast);
    await rawPeer.nextPsn(psn(2));
    rawPeer.acknowledge(psn(2));
    assert.deepEqual(await end.sentStatuses(2), ['1:SUCCESS', '2:SUCCESS']);
    assert.deepEqual(
      (await rawPeer.settled(30)).filter(({ psn: number }) => number === psn(3)),
      [],
    );
    end.qp.modify('RTS');
    await rawPeer.nextPsn(psn(3));
    rawPeer.acknowledge(psn(3));
    assert.deepEqual(await end.sentStatuses(), ['3:SUCCESS']);
  });

  test('a peer that only counts its messages is asked for an acknowledgement often enough to go on', async () => {
    using tested = new QpUnderTest({ sizeBytes: 1 << 20 });
    const { end, rawPeer } = tested;
    const packets = 600;
    end.post((batch) => batch.write(1, REMOTE, RKEY).sge(...end.at(0, packets * MTU)));
    let expected = psn(0);
    while (expected !== psn(packets)) {
      const one = await rawPeer.next('a packet');
      if (one.psn === expected) expected = addSequence(expected, 1);
      // Never without being asked. What its socket had no room for it does not miss: it must be
      // told again.
      if (one.isAckRequested) rawPeer.acknowledge(addSequence(expected, -1));
    }
    assert.deepEqual(await end.sentStatuses(), ['1:SUCCESS']);
  });

  test('an acknowledgement to a QP that has nothing under way changes nothing', async () => {
    using tested = new QpUnderTest();
    const { end, rawPeer } = tested;
    for (const syndrome of [ack, rnrNak | 1, nak | nakCodes.sequence, nak | nakCodes.access]) {
      for (const index of [-1, 0, 1]) rawPeer.acknowledge(psn(index), syndrome);
    }
    await rawPeer.settled(20);
    assert.equal(end.qp.state, 'RTS');
    end.post((batch) => batch.send(1).sge(...end.at(0, 8)));
    assert.equal((await rawPeer.nextPsn(psn(0))).opcode, sendOnly);
    rawPeer.send({ opcode: acknowledge, psn: psn(0), syndrome: 0, msn: 1 });
    assert.deepEqual(await end.sentStatuses(), ['1:SUCCESS']);
  });
});
