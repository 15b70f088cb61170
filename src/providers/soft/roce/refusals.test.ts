// What a QP refuses, and what it tells the peer.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { until } from '../../../../test/conformance/wait.ts';
import { access } from '../../index.ts';
import { answer, pattern, psn, QpUnderTest } from './fixtures/qp-under-test.ts';
import type { Fields } from './fixtures/raw-peer.ts';
import { operations } from './opcode.ts';
import { nakCodes, syndromes } from './packet.ts';

const { ack, nak } = syndromes;
const { invalid, access: accessCode, operation } = nakCodes;
const { sendFirst, sendMiddle, sendLast, sendOnly, sendLastWithImm } = operations;
const { writeFirst, writeMiddle, writeLast, writeOnly, readRequest } = operations;
const { acknowledge, fetchAdd, compareSwap } = operations;

type Step = readonly [fields: Fields, payloadBytes: number];
type Steps = (at: QpUnderTest['at']) => readonly Step[];

const step = (opcode: number, payloadBytes: number, fields: Fields = {}): Step => [{ opcode, ...fields }, payloadBytes];

/** What makes no sense, by name: its packets, of which the last is the wrong one. */
const invalids: Readonly<Record<string, Steps>> = {
  'the middle of a SEND without its start': () => [step(sendMiddle, 1024)],
  'the end of a SEND without its start': () => [step(sendLast, 5)],
  'the end of a SEND with data without its start': () => [step(sendLastWithImm, 5)],
  'the middle of a WRITE without its start': () => [step(writeMiddle, 1024)],
  'the end of a WRITE without its start': () => [step(writeLast, 5)],
  'the start of a SEND within a SEND': () => [step(sendFirst, 1024), step(sendFirst, 1024)],
  'a whole SEND within a SEND': () => [step(sendFirst, 1024), step(sendOnly, 1)],
  'the end of a WRITE within a SEND': () => [step(sendFirst, 1024), step(writeLast, 1)],
  'a READ within a SEND': (at) => [step(sendFirst, 1024), step(readRequest, 0, at(0, 8))],
  'an atomic within a WRITE': (at) => [step(writeFirst, 1024, at(0, 2048)), step(fetchAdd, 0, at(0))],
  'the start of a SEND that is shorter than the MTU': () => [step(sendFirst, 1023)],
  'the start of a SEND that is longer than the MTU': () => [step(sendFirst, 1028)],
  'the middle of a SEND that is not as long as the MTU': () => [step(sendFirst, 1024), step(sendMiddle, 512)],
  'a whole SEND that is longer than the MTU': () => [step(sendOnly, 1025)],
  'the end of a SEND with nothing in it': () => [step(sendFirst, 1024), step(sendLast, 0)],
  'a WRITE that is longer than it said': (at) => [step(writeOnly, 5, at(0, 4))],
  'a WRITE that is shorter than it said': (at) => [step(writeOnly, 3, at(0, 4))],
  'a WRITE that goes on after its end': (at) => [step(writeFirst, 1024, at(0, 1500)), step(writeMiddle, 1024)],
  'a WRITE that ends too early': (at) => [step(writeFirst, 1024, at(0, 3000)), step(writeLast, 976)],
  'an atomic on bytes that are not aligned': (at) => [step(fetchAdd, 0, at(4))],
};

/** What wants memory that it may not reach. */
const trespasses: Readonly<Record<string, Steps>> = {
  'a WRITE with a wrong key': (at) => [step(writeOnly, 4, { ...at(0, 4), rkey: 0x1234 })],
  'a WRITE past the end of a region': (at) => [step(writeFirst, 1024, at(65_536 - 1024, 1025))],
  'a WRITE to an address past 2^53': (at) => [step(writeOnly, 4, { ...at(0, 4), addressHigh: 0xffff_ffff })],
  'a WRITE of more than a message may be': (at) => [step(writeFirst, 1024, at(0, 0xffff_ffff))],
  'a READ with a wrong key': (at) => [step(readRequest, 0, { ...at(0, 4), rkey: 0x1234 })],
  'a READ past the end of a region': (at) => [step(readRequest, 0, at(65_535, 2))],
  'a READ of more than a message may be': (at) => [step(readRequest, 0, at(0, 0xffff_ffff))],
  'an atomic with a wrong key': (at) => [step(fetchAdd, 0, { ...at(0), rkey: 0x1234 })],
  'an atomic past the end of a region': (at) => [step(compareSwap, 0, at(65_536))],
};

describe('RoCE refusals', () => {
  for (const [name, steps] of [...Object.entries(invalids), ...Object.entries(trespasses)]) {
    test(`${name} is refused, changes nothing, and ends the QP`, async () => {
      using tested = new QpUnderTest();
      const { end, rawPeer } = tested;
      end.receive(1, 32_768, 8192);
      const packets = steps((offset, dmaLength) => tested.at(offset, dmaLength));
      const before = end.bytes(0, 32_768).slice();
      for (const [index, [fields, payloadBytes]] of packets.entries()) {
        rawPeer.send({ psn: psn(index), isAckRequested: true, ...fields }, pattern(payloadBytes, 9));
      }
      const refusal = await rawPeer.next('a refusal', (one) => one.opcode === acknowledge && one.syndrome !== ack);
      const code = name in invalids ? invalid : accessCode;
      assert.deepEqual(answer(refusal), [psn(packets.length - 1), nak | code, 0]);
      await until('the QP is in error', () => end.qp.state === 'ERR');
      assert.deepEqual(await end.receivedStatuses(), ['1:WR_FLUSH_ERR']);
      // What came before the mistake may be there: the first packet of a write.
      const written = packets.length > 1 && packets[0]?.[0].opcode === writeFirst ? 1024 : 0;
      assert.deepEqual(end.bytes(written, 32_768 - written), before.subarray(written));
      assert.deepEqual(await rawPeer.settled(30), []);
    });
  }

  for (const [missing, fields] of [
    ['remoteWrite', { opcode: writeOnly }],
    ['remoteRead', { opcode: readRequest }],
    ['remoteAtomic', { opcode: fetchAdd }],
  ] as const) {
    test(`without ${missing}, on the region or on the QP, it is refused`, async () => {
      const allowed = Object.values(access).reduce((all, bit) => all | bit, 0) & ~access[missing];
      for (const options of [{ access: allowed }, { qpAccess: allowed }]) {
        using tested = new QpUnderTest(options);
        tested.rawPeer.send({ ...fields, ...tested.at(0, 8), psn: psn(0) }, pattern(missing === 'remoteWrite' ? 8 : 0));
        assert.deepEqual(await tested.nextAnswer(), [psn(0), nak | accessCode, 0]);
      }
    });
  }

  test('a SEND that is longer than its receive fails both', async () => {
    using tested = new QpUnderTest();
    const { end, rawPeer } = tested;
    end.receive(7, 0, 1500);
    rawPeer.send({ opcode: sendFirst, psn: psn(0) }, pattern(1024));
    rawPeer.send({ opcode: sendLast, psn: psn(1) }, pattern(477));
    assert.deepEqual(await end.receivedStatuses(), ['7:LOC_LEN_ERR']);
    assert.deepEqual(await tested.nextAnswer(), [psn(1), nak | invalid, 0]);
    assert.equal(end.qp.state, 'ERR');
  });

  test('a receive whose memory is gone fails both, and the peer is told that it was not its fault', async () => {
    using tested = new QpUnderTest();
    const { end, rawPeer } = tested;
    const other = end.pd.allocate({ sizeBytes: 4096 });
    end.postReceives((batch) => batch.receive(8).sge(other.lkey, other.address, 4096));
    other.close();
    rawPeer.send({ opcode: sendOnly, psn: psn(0) }, pattern(4));
    assert.deepEqual(await end.receivedStatuses(), ['8:LOC_PROT_ERR']);
    assert.deepEqual(await tested.nextAnswer(), [psn(0), nak | operation, 0]);
  });

  test('more READs at once than were agreed on are refused', async () => {
    using tested = new QpUnderTest({ attributes: { maxDestRdAtomic: 1 }, sizeBytes: 8 << 20 });
    const { rawPeer } = tested;
    // In one turn, so that the first is not answered yet.
    for (const index of [0, 1]) {
      rawPeer.send({ opcode: readRequest, ...tested.at(0, 4 << 20), psn: psn(index * 4096) });
    }
    const refusal = await rawPeer.next('a refusal', ({ opcode }) => opcode === acknowledge);
    assert.equal(refusal.syndrome, nak | invalid);
  });
});
