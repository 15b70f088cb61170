// What a QP answers to requests, packet by packet.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { modifyToRts } from '../../../../test/conformance/connect.ts';
import { reap, until } from '../../../../test/conformance/wait.ts';
import { ReceiveBatch } from '../../index.ts';
import { answer, PSN, pattern, psn, QpUnderTest, RAW_PEER_QP } from './fixtures/qp-under-test.ts';
import { operations } from './opcode.ts';
import { nakCodes, syndromes } from './packet.ts';

const { ack, nak, rnrNak } = syndromes;
const { sequence } = nakCodes;
const { sendFirst, sendMiddle, sendOnly, sendLastWithImm, sendOnlyWithImm } = operations;
const { writeFirst, writeOnly, writeOnlyWithImm, writeLastWithImm, readRequest } = operations;
const { readResponseFirst, readResponseMiddle, readResponseLast, readResponseOnly } = operations;
const { atomicAcknowledge, fetchAdd } = operations;

describe('RoCE responder', () => {
  test('a SEND of many packets goes over the end of the numbers, and is acknowledged when asked', async () => {
    using tested = new QpUnderTest();
    const { end, rawPeer } = tested;
    const data = pattern(4 * 1024 + 77);
    end.receive(1, 0, 8192);
    for (let index = 0; index < 5; index++) {
      const opcode = index === 0 ? sendFirst : index === 4 ? sendLastWithImm : sendMiddle;
      const isAckRequested = index === 4;
      rawPeer.send(
        { opcode, psn: psn(index), imm: 0xdead_beef, isAckRequested },
        data.subarray(index * 1024, index * 1024 + 1024),
      );
    }
    const [completion] = await end.received();
    const { status, byteLength, imm, wrId } = completion ?? {};
    assert.deepEqual(
      { status, byteLength, imm, wrId },
      { status: 'SUCCESS', byteLength: data.length, imm: 0xdead_beef, wrId: 1 },
    );
    assert.deepEqual(end.bytes(0, data.length), data);
    assert.equal(psn(4), 2);
    assert.deepEqual(await tested.nextAnswer(), [2, ack, 1]);
    assert.deepEqual(await rawPeer.settled(30), []);
  });

  test('without a request for it there is no acknowledgement; one is for all before it', async () => {
    using tested = new QpUnderTest();
    const { rawPeer } = tested;
    for (let index = 0; index < 7; index++) {
      rawPeer.send({ opcode: writeOnly, ...tested.at(index, 1), psn: psn(index) }, Uint8Array.of(index + 1));
    }
    await until('the writes are there', () => tested.end.bytes(6, 1)[0] === 7);
    assert.deepEqual(await rawPeer.settled(30), []);
    rawPeer.send({ opcode: writeOnly, ...tested.at(7, 1), psn: psn(7), isAckRequested: true }, Uint8Array.of(8));
    assert.deepEqual(await tested.nextAnswer(), [psn(7), ack, 8]);
    assert.deepEqual([...tested.end.bytes(0, 8)], [1, 2, 3, 4, 5, 6, 7, 8]);
  });

  test('a gap is told once, with the number that is missing, and healed by going back', async () => {
    using tested = new QpUnderTest();
    const { end, rawPeer } = tested;
    const write = (index: number): void =>
      rawPeer.send(
        { opcode: writeOnly, ...tested.at(index, 1), psn: psn(index), isAckRequested: true },
        Uint8Array.of(index + 1),
      );
    write(0);
    assert.deepEqual(await tested.nextAnswer(), [psn(0), ack, 1]);
    for (const index of [2, 3, 4]) write(index);
    assert.deepEqual(await tested.nextAnswer(), [psn(1), nak | sequence, 1]);
    write(5);
    assert.deepEqual(await rawPeer.settled(50), []);
    assert.deepEqual([...end.bytes(0, 6)], [1, 0, 0, 0, 0, 0]);
    for (const index of [1, 2, 3, 4, 5]) write(index);
    const last = await rawPeer.nextPsn(psn(5));
    assert.deepEqual(answer(last), [psn(5), ack, 6]);
    assert.deepEqual([...end.bytes(0, 6)], [1, 2, 3, 4, 5, 6]);
    // A new gap is a new reason to complain.
    write(8);
    assert.deepEqual(await tested.nextAnswer(), [psn(6), nak | sequence, 6]);
  });

  test('a READ is answered in packets of the MTU, first to last', async () => {
    using tested = new QpUnderTest();
    const { end, rawPeer } = tested;
    const data = pattern(3 * 1024 + 5);
    end.bytes(64, data.length).set(data);
    rawPeer.send({ opcode: readRequest, ...tested.at(64, data.length), psn: psn(0) });
    const kinds = [readResponseFirst, readResponseMiddle, readResponseMiddle, readResponseLast];
    for (const [index, opcode] of kinds.entries()) {
      const one = await rawPeer.next('an answer');
      assert.deepEqual([one.opcode, one.psn, one.destQp], [opcode, psn(index), RAW_PEER_QP]);
      assert.deepEqual(one.payload, data.slice(index * 1024, index * 1024 + 1024));
      if (opcode !== readResponseMiddle) assert.deepEqual([one.syndrome, one.msn], [ack, 1]);
    }
    // The numbers of its answer are taken.
    rawPeer.send({ opcode: readRequest, ...tested.at(64, 7), psn: psn(4) });
    const only = await rawPeer.next('an answer');
    assert.deepEqual([only.opcode, only.psn, only.msn], [readResponseOnly, psn(4), 2]);
    assert.deepEqual(only.payload, data.slice(0, 7));
    rawPeer.send({ opcode: readRequest, ...tested.at(0, 0), rkey: 0, psn: psn(5) });
    const empty = await rawPeer.next('an answer');
    assert.deepEqual([empty.opcode, empty.psn, empty.payloadBytes], [readResponseOnly, psn(5), 0]);
  });

  test('an atomic sees what was written just before it', async () => {
    using tested = new QpUnderTest();
    const { rawPeer } = tested;
    rawPeer.send({ opcode: writeOnly, ...tested.at(8, 8), psn: psn(0) }, Uint8Array.of(9, 0, 0, 0, 0, 0, 0, 0));
    rawPeer.send({ opcode: fetchAdd, ...tested.at(8), swapLow: 1, psn: psn(1) });
    assert.equal((await rawPeer.nextPsn(psn(1), atomicAcknowledge)).originalLow, 9);
    assert.equal(tested.end.bytes(8, 1)[0], 10);
  });

  test('without a receive the peer is told to wait, what is behind it is dropped, and then it goes on', async () => {
    using tested = new QpUnderTest({ attributes: { minRnrTimer: 13 } });
    const { end, rawPeer } = tested;
    const sends = (): void => {
      rawPeer.send({ opcode: sendOnly, psn: psn(0), isAckRequested: true }, pattern(4));
      rawPeer.send({ opcode: writeOnly, ...tested.at(100, 1), psn: psn(1), isAckRequested: true }, Uint8Array.of(1));
    };
    sends();
    assert.deepEqual(await tested.nextAnswer(), [psn(0), rnrNak | 13, 0]);
    assert.deepEqual(await rawPeer.settled(30), []);
    assert.equal(end.bytes(100, 1)[0], 0);
    sends();
    assert.deepEqual(await tested.nextAnswer(), [psn(0), rnrNak | 13, 0]);
    end.receive(1, 0, 4);
    sends();
    assert.deepEqual(answer(await rawPeer.nextPsn(psn(1))), [psn(1), ack, 2]);
    assert.deepEqual(await end.receivedStatuses(), ['1:SUCCESS']);
    assert.equal(end.bytes(100, 1)[0], 1);
  });

  test('a WRITE with data waits for a receive at its last packet, and what came before it stays', async () => {
    using tested = new QpUnderTest({ attributes: { minRnrTimer: 1 } });
    const { end, rawPeer } = tested;
    const data = pattern(1500);
    const last = { opcode: writeLastWithImm, psn: psn(1), imm: 5, isAckRequested: true };
    rawPeer.send({ opcode: writeFirst, ...tested.at(0, 1500), psn: psn(0) }, data.subarray(0, 1024));
    rawPeer.send(last, data.subarray(1024));
    assert.deepEqual(await tested.nextAnswer(), [psn(1), rnrNak | 1, 0]);
    end.receive(3, 4096, 0);
    rawPeer.send(last, data.subarray(1024));
    const [completion] = await end.received();
    assert.deepEqual([completion?.wrId, completion?.opcode, completion?.imm], [3, 'receiveWriteWithImm', 5]);
    assert.equal(completion?.byteLength, 1500);
    assert.deepEqual(await tested.nextAnswer(), [psn(1), ack, 1]);
    assert.deepEqual(end.bytes(0, 1500), data);
    // In one packet as well.
    const only = { opcode: writeOnlyWithImm, ...tested.at(0, 4), psn: psn(2), imm: 6, isAckRequested: true };
    rawPeer.send(only, pattern(4, 1));
    assert.deepEqual(await tested.nextAnswer(), [psn(2), rnrNak | 1, 1]);
    end.receive(4, 4096, 0);
    rawPeer.send(only, pattern(4, 1));
    assert.deepEqual(await tested.nextAnswer(), [psn(2), ack, 2]);
  });

  test('only the solicited bit of the last packet wakes a CQ that is armed for solicited completions', async () => {
    using tested = new QpUnderTest();
    const { end, rawPeer } = tested;
    for (const wrId of [1, 2]) end.receive(wrId, 0, 64);
    const events: number[] = [];
    end.receiveCq.arm(true);
    rawPeer.send({ opcode: sendOnlyWithImm, psn: psn(0), imm: 1, isAckRequested: true });
    await rawPeer.nextPsn(psn(0));
    const { channel } = end.receiveCq;
    assert.ok(channel !== undefined);
    events.push(channel.take().length);
    rawPeer.send({ opcode: sendOnlyWithImm, psn: psn(1), imm: 1, isSolicited: true, isAckRequested: true });
    await rawPeer.nextPsn(psn(1));
    events.push(channel.take().length);
    assert.deepEqual(events, [0, 1]);
  });

  test('an event finds in place what has completed, and its listener may close the memory', async () => {
    using tested = new QpUnderTest();
    const { device, end, rawPeer } = tested;
    const srq = end.pd.createSrq();
    const mr = end.pd.allocate({ sizeBytes: 4096 });
    using receives = new ReceiveBatch();
    for (let wrId = 0; wrId < 3; wrId++) receives.receive(wrId).sge(mr.lkey, mr.address + wrId * 64, 64);
    srq.post(receives);
    srq.setLimit(2);
    const qp = end.createQp({ srq });
    const peer = { device, qpNumber: RAW_PEER_QP, psn: PSN };
    modifyToRts(qp, 'RTS', PSN, peer, { attributes: { path: { gid: rawPeer.gid }, pathMtu: 1024 } });
    rawPeer.testedQp = qp.number;
    const seen: Uint8Array[] = [];
    device.events.on('srqLimit', () => {
      for (const { wrId } of reap(end.receiveCq)) seen.push(mr.bytes.slice(wrId * 64, wrId * 64 + 4));
      mr.close();
    });
    for (const index of [0, 1, 2]) rawPeer.send({ opcode: sendOnly, psn: psn(index) }, pattern(4, index));
    await until('the QP is in error', () => qp.state === 'ERR');
    assert.deepEqual(seen, [pattern(4, 0)]);
    assert.deepEqual(await end.receivedStatuses(), ['1:LOC_PROT_ERR']);
  });

  test('a QP in RTR answers, too', async () => {
    using tested = new QpUnderTest({ state: 'RTR' });
    tested.rawPeer.send({ opcode: writeOnly, ...tested.at(0, 1), psn: psn(0), isAckRequested: true }, Uint8Array.of(1));
    assert.deepEqual(await tested.nextAnswer(), [psn(0), ack, 1]);
  });

  test('every request is counted, also over the end of the numbers', async () => {
    using tested = new QpUnderTest();
    const { rawPeer } = tested;
    for (let index = 0; index < 5; index++) {
      rawPeer.send({ opcode: writeOnly, ...tested.at(0, 0), psn: psn(index), isAckRequested: true });
      assert.deepEqual(await tested.nextAnswer(), [psn(index), ack, index + 1]);
    }
  });
});
