// What a QP does with requests that come again: answered again, carried out once.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { reap } from '../../../../test/conformance/wait.ts';
import { access } from '../../index.ts';
import { pattern, psn, QpUnderTest } from './fixtures/qp-under-test.ts';
import { operations } from './opcode.ts';
import { nakCodes, syndromes } from './packet.ts';

const { ack, nak } = syndromes;
const { sendFirst, sendLast, sendOnly, writeOnly, readRequest } = operations;
const { readResponseFirst, readResponseLast, readResponseOnly } = operations;
const { atomicAcknowledge, fetchAdd, compareSwap } = operations;

describe('RoCE duplicate requests', () => {
  test('a SEND or WRITE that comes again is acknowledged again and not carried out again', async () => {
    using tested = new QpUnderTest();
    const { end, rawPeer } = tested;
    end.receive(1, 0, 64);
    end.receive(2, 64, 64);
    const isAckRequested = true;
    rawPeer.send({ opcode: sendOnly, psn: psn(0), isAckRequested }, pattern(8, 1));
    rawPeer.send({ opcode: writeOnly, ...tested.at(200, 4), psn: psn(1), isAckRequested }, pattern(4, 2));
    await rawPeer.nextPsn(psn(1));
    end.bytes(200, 4).fill(0);
    for (const index of [0, 1]) {
      const fields = index === 0 ? { opcode: sendOnly } : { opcode: writeOnly, ...tested.at(200, 4) };
      rawPeer.send({ ...fields, psn: psn(index), isAckRequested }, pattern(index === 0 ? 8 : 4, 3));
      assert.deepEqual(await tested.nextAnswer(), [psn(1), ack, 2]);
    }
    assert.deepEqual([...end.bytes(200, 4)], [0, 0, 0, 0]);
    assert.deepEqual(await end.receivedStatuses(), ['1:SUCCESS']);
    assert.deepEqual(end.bytes(0, 8), pattern(8, 1));
    assert.deepEqual(reap(end.receiveCq), []);
    rawPeer.send({ opcode: sendOnly, psn: psn(2), isAckRequested }, pattern(3, 4));
    assert.deepEqual(await end.receivedStatuses(), ['2:SUCCESS']);
  });

  test('a packet of a message under way that comes again does not disturb it', async () => {
    using tested = new QpUnderTest();
    const { end, rawPeer } = tested;
    end.receive(1, 0, 4096);
    const data = pattern(2048);
    rawPeer.send({ opcode: sendFirst, psn: psn(0) }, data.subarray(0, 1024));
    rawPeer.send({ opcode: sendFirst, psn: psn(0), isAckRequested: true }, pattern(1024, 99));
    // An acknowledgement in the middle of the message: its first packet has come, nothing is done.
    assert.deepEqual(await tested.nextAnswer(), [psn(0), ack, 0]);
    rawPeer.send({ opcode: sendLast, psn: psn(1), isAckRequested: true }, data.subarray(1024));
    assert.deepEqual(await tested.nextAnswer(), [psn(1), ack, 1]);
    assert.deepEqual(await end.receivedStatuses(), ['1:SUCCESS']);
    assert.deepEqual(end.bytes(0, 2048), data);
  });

  test('a READ that comes again is answered again, also from its middle, with what is there then', async () => {
    using tested = new QpUnderTest();
    const { end, rawPeer } = tested;
    rawPeer.send({ opcode: readRequest, ...tested.at(0, 3000), psn: psn(0) });
    await rawPeer.nextPsn(psn(2), readResponseLast);
    end.bytes(0, 3000).set(pattern(3000, 5));
    rawPeer.send({ opcode: readRequest, ...tested.at(0, 3000), psn: psn(0) });
    for (const index of [0, 1, 2]) {
      assert.deepEqual(
        (await rawPeer.nextPsn(psn(index))).payload,
        pattern(3000, 5).slice(index * 1024, index * 1024 + 1024),
      );
    }
    rawPeer.send({ opcode: readRequest, ...tested.at(1024, 1976), psn: psn(1) });
    const again = [await rawPeer.next('an answer'), await rawPeer.next('an answer')];
    assert.deepEqual(
      again.map(({ opcode, psn: number }) => [opcode, number]),
      [
        [readResponseFirst, psn(1)],
        [readResponseLast, psn(2)],
      ],
    );
    assert.deepEqual(again[0]?.payload, pattern(3000, 5).slice(1024, 2048));
    // Nothing of it is counted twice.
    rawPeer.send({ opcode: writeOnly, ...tested.at(0, 0), psn: psn(3), isAckRequested: true });
    assert.deepEqual(await tested.nextAnswer(), [psn(3), ack, 2]);
  });

  test('a READ that comes again after its key was revoked is refused by its own number', async () => {
    using tested = new QpUnderTest();
    const { end, rawPeer } = tested;
    const other = end.pd.allocate({ sizeBytes: 4096, access: access.remoteRead });
    const place = {
      addressHigh: Math.floor(other.address / 2 ** 32),
      addressLow: other.address % 2 ** 32,
      rkey: other.rkey,
    };
    rawPeer.send({ opcode: readRequest, ...place, dmaLength: 2048, psn: psn(0) });
    await rawPeer.nextPsn(psn(1), readResponseLast);
    other.close();
    rawPeer.send({ opcode: readRequest, ...place, dmaLength: 2048, psn: psn(0) });
    assert.deepEqual(await tested.nextAnswer(), [psn(0), nak | nakCodes.access, 1]);
  });

  test('a READ that comes again and asks for more than before gets what it asked for before', async () => {
    using tested = new QpUnderTest();
    const { rawPeer } = tested;
    rawPeer.send({ opcode: readRequest, ...tested.at(0, 2048), psn: psn(0) });
    await rawPeer.nextPsn(psn(1), readResponseLast);
    rawPeer.send({ opcode: readRequest, ...tested.at(1024, 3072), psn: psn(1) });
    const again = await rawPeer.next('an answer');
    assert.deepEqual([again.opcode, again.psn, again.payloadBytes], [readResponseOnly, psn(1), 1024]);
    rawPeer.send({ opcode: readRequest, ...tested.at(2048, 2048), psn: psn(2) });
    assert.equal((await rawPeer.next('an answer')).psn, psn(2));
    assert.equal((await rawPeer.next('an answer')).opcode, readResponseLast);
    assert.deepEqual(await rawPeer.settled(30), []);
  });

  test('atomics are carried out once, and answered from memory when they come again', async () => {
    using tested = new QpUnderTest();
    const { end, rawPeer } = tested;
    const word = new BigUint64Array(end.mr.bytes.buffer, end.mr.bytes.byteOffset, 2);
    word[0] = 0x1_0000_0005n;
    const add = { opcode: fetchAdd, ...tested.at(0), swapHigh: 1, swapLow: 0xffff_ffff, psn: psn(0) };
    const swap = {
      opcode: compareSwap,
      ...tested.at(0),
      compareHigh: 3,
      compareLow: 4,
      swapHigh: 7,
      swapLow: 8,
      psn: psn(1),
    };
    const original = async (index: number): Promise<[number, number, number]> => {
      const one = await rawPeer.next('an answer');
      assert.deepEqual([one.opcode, one.psn, one.syndrome], [atomicAcknowledge, psn(index), ack]);
      return [one.originalHigh, one.originalLow, one.msn];
    };
    rawPeer.send(add);
    assert.deepEqual(await original(0), [1, 5, 1]);
    assert.equal(word[0], 0x3_0000_0004n);
    rawPeer.send(add);
    assert.deepEqual(await original(0), [1, 5, 1]);
    assert.equal(word[0], 0x3_0000_0004n);
    rawPeer.send(swap);
    assert.deepEqual(await original(1), [3, 4, 2]);
    assert.equal(word[0], 0x7_0000_0008n);
    // The swap would succeed again if it were carried out again.
    word[0] = 0x3_0000_0004n;
    rawPeer.send(swap);
    assert.deepEqual(await original(1), [3, 4, 2]);
    assert.equal(word[0], 0x3_0000_0004n);
    rawPeer.send(add);
    assert.deepEqual(await original(0), [1, 5, 2]);
    rawPeer.send({ ...swap, psn: psn(2), compareLow: 5 });
    assert.deepEqual(await original(2), [3, 4, 3]);
    assert.equal(word[0], 0x3_0000_0004n, 'a comparison that fails');
  });
});
