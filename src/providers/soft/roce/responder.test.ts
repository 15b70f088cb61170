// What a QP answers to requests, packet by packet.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { climb } from '../../../../test/conformance/connect.ts';
import { reap, until } from '../../../../test/conformance/wait.ts';
import { access, ReceiveBatch } from '../../index.ts';
import type { Arrival, Fields } from './fixtures/impostor.ts';
import { IMPOSTOR_QP, PSN, pattern, psn, Victim } from './fixtures/victim.ts';
import { operations } from './opcode.ts';
import { nakCodes, syndromes } from './packet.ts';

const { ack, nak, rnrNak } = syndromes;
const { sequence, invalid, access: accessCode } = nakCodes;
const { sendFirst, sendMiddle, sendLast, sendOnly, sendLastWithImm, sendOnlyWithImm } = operations;
const { writeFirst, writeMiddle, writeLast, writeOnly, writeOnlyWithImm, writeLastWithImm, readRequest } = operations;
const { readResponseFirst, readResponseMiddle, readResponseLast, readResponseOnly } = operations;
const { acknowledge, atomicAcknowledge, fetchAdd, compareSwap } = operations;

/** `[PSN, syndrome, MSN]` of an acknowledgement that goes to the right QP. */
function answer({ opcode, psn: number, syndrome, msn, destQp }: Arrival): [number, number, number] {
  assert.equal(opcode, acknowledge);
  assert.equal(destQp, IMPOSTOR_QP);
  return [number, syndrome, msn];
}

async function nextAnswer({ impostor }: Victim): Promise<[number, number, number]> {
  return answer(await impostor.next('an acknowledgement'));
}

describe('RoCE responder', () => {
  // What a peer does wrong: the fields, whether a message is under way, and what it is told.
  const wrongs: Readonly<Record<string, readonly [steps: (victim: Victim) => [Fields, number?][], syndrome: number]>> =
    {
      'the middle of a SEND without its start': [() => [[{ opcode: sendMiddle }, 1024]], nak | invalid],
      'the end of a SEND without its start': [() => [[{ opcode: sendLast }, 5]], nak | invalid],
      'the end of a SEND with data without its start': [() => [[{ opcode: sendLastWithImm }, 5]], nak | invalid],
      'the middle of a WRITE without its start': [() => [[{ opcode: writeMiddle }, 1024]], nak | invalid],
      'the end of a WRITE without its start': [() => [[{ opcode: writeLast }, 5]], nak | invalid],
      'the start of a SEND within a SEND': [
        () => [
          [{ opcode: sendFirst }, 1024],
          [{ opcode: sendFirst }, 1024],
        ],
        nak | invalid,
      ],
      'a whole SEND within a SEND': [
        () => [
          [{ opcode: sendFirst }, 1024],
          [{ opcode: sendOnly }, 1],
        ],
        nak | invalid,
      ],
      'the end of a WRITE within a SEND': [
        () => [
          [{ opcode: sendFirst }, 1024],
          [{ opcode: writeLast }, 1],
        ],
        nak | invalid,
      ],
      'a READ within a SEND': [
        (victim) => [[{ opcode: sendFirst }, 1024], [{ opcode: readRequest, ...victim.at(0, 8) }]],
        nak | invalid,
      ],
      'an atomic within a WRITE': [
        (victim) => [[{ opcode: writeFirst, ...victim.at(0, 2048) }, 1024], [{ opcode: fetchAdd, ...victim.at(0) }]],
        nak | invalid,
      ],
      'the start of a SEND that is shorter than the MTU': [() => [[{ opcode: sendFirst }, 1023]], nak | invalid],
      'the start of a SEND that is longer than the MTU': [() => [[{ opcode: sendFirst }, 1028]], nak | invalid],
      'the middle of a SEND that is not as long as the MTU': [
        () => [
          [{ opcode: sendFirst }, 1024],
          [{ opcode: sendMiddle }, 512],
        ],
        nak | invalid,
      ],
      'a whole SEND that is longer than the MTU': [() => [[{ opcode: sendOnly }, 1025]], nak | invalid],
      'the end of a SEND with nothing in it': [
        () => [
          [{ opcode: sendFirst }, 1024],
          [{ opcode: sendLast }, 0],
        ],
        nak | invalid,
      ],
      'a WRITE that is longer than it said': [
        (victim) => [[{ opcode: writeOnly, ...victim.at(0, 4) }, 5]],
        nak | invalid,
      ],
      'a WRITE that is shorter than it said': [
        (victim) => [[{ opcode: writeOnly, ...victim.at(0, 4) }, 3]],
        nak | invalid,
      ],
      'a WRITE that goes on after its end': [
        (victim) => [
          [{ opcode: writeFirst, ...victim.at(0, 1500) }, 1024],
          [{ opcode: writeMiddle }, 1024],
        ],
        nak | invalid,
      ],
      'a WRITE that ends too early': [
        (victim) => [
          [{ opcode: writeFirst, ...victim.at(0, 3000) }, 1024],
          [{ opcode: writeLast }, 976],
        ],
        nak | invalid,
      ],
      'a WRITE with a wrong key': [
        (victim) => [[{ opcode: writeOnly, ...victim.at(0, 4), rkey: 0x1234 }, 4]],
        nak | accessCode,
      ],
      'a WRITE past the end of a region': [
        (victim) => [[{ opcode: writeFirst, ...victim.at(65_536 - 1024, 1025) }, 1024]],
        nak | accessCode,
      ],
      'a WRITE to an address past 2^53': [
        (victim) => [[{ opcode: writeOnly, ...victim.at(0, 4), addressHigh: 0xffff_ffff }, 4]],
        nak | accessCode,
      ],
      'a WRITE of more than a message may be': [
        (victim) => [[{ opcode: writeFirst, ...victim.at(0, 0xffff_ffff) }, 1024]],
        nak | accessCode,
      ],
      'a READ with a wrong key': [
        (victim) => [[{ opcode: readRequest, ...victim.at(0, 4), rkey: 0x1234 }]],
        nak | accessCode,
      ],
      'a READ past the end of a region': [
        (victim) => [[{ opcode: readRequest, ...victim.at(65_535, 2) }]],
        nak | accessCode,
      ],
      'a READ of more than a message may be': [
        (victim) => [[{ opcode: readRequest, ...victim.at(0, 0xffff_ffff) }]],
        nak | accessCode,
      ],
      'an atomic with a wrong key': [
        (victim) => [[{ opcode: fetchAdd, ...victim.at(0), rkey: 0x1234 }]],
        nak | accessCode,
      ],
      'an atomic past the end of a region': [
        (victim) => [[{ opcode: compareSwap, ...victim.at(65_536) }]],
        nak | accessCode,
      ],
      'an atomic on bytes that are not aligned': [(victim) => [[{ opcode: fetchAdd, ...victim.at(4) }]], nak | invalid],
    };

  for (const [name, [steps, syndrome]] of Object.entries(wrongs)) {
    test(`${name} is refused, changes nothing, and ends the QP`, async () => {
      using victim = new Victim();
      const { end, impostor } = victim;
      end.receive(1, 32_768, 8192);
      const packets = steps(victim);
      const before = end.bytes(0, 32_768).slice();
      for (const [index, [fields, payloadBytes = 0]] of packets.entries()) {
        impostor.send({ psn: psn(index), isAckRequested: true, ...fields }, pattern(payloadBytes, 9));
      }
      const refusal = await impostor.next('a refusal', (one) => one.opcode === acknowledge && one.syndrome !== ack);
      assert.deepEqual(answer(refusal), [psn(packets.length - 1), syndrome, 0]);
      await until('the QP is in error', () => end.qp.state === 'ERR');
      assert.deepEqual(await end.receivedStatuses(), ['1:WR_FLUSH_ERR']);
      // What came before the mistake may be there: the first packet of a write.
      const written = packets.length > 1 && packets[0]?.[0].opcode === writeFirst ? 1024 : 0;
      assert.deepEqual(end.bytes(written, 32_768 - written), before.subarray(written));
      assert.deepEqual(await impostor.settled(30), []);
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
        using victim = new Victim(options);
        victim.impostor.send(
          { ...fields, ...victim.at(0, 8), psn: psn(0) },
          pattern(missing === 'remoteWrite' ? 8 : 0),
        );
        assert.deepEqual(await nextAnswer(victim), [psn(0), nak | accessCode, 0]);
      }
    });
  }

  test('a SEND that is longer than its receive fails both', async () => {
    using victim = new Victim();
    const { end, impostor } = victim;
    end.receive(7, 0, 1500);
    impostor.send({ opcode: sendFirst, psn: psn(0) }, pattern(1024));
    impostor.send({ opcode: sendLast, psn: psn(1) }, pattern(477));
    assert.deepEqual(await end.receivedStatuses(), ['7:LOC_LEN_ERR']);
    assert.deepEqual(await nextAnswer(victim), [psn(1), nak | invalid, 0]);
    assert.equal(end.qp.state, 'ERR');
  });

  test('a receive whose memory is gone fails both, and the peer is told that it was not its fault', async () => {
    using victim = new Victim();
    const { end, impostor } = victim;
    const other = end.pd.allocate({ sizeBytes: 4096 });
    end.postReceives((batch) => batch.receive(8).sge(other.lkey, other.address, 4096));
    other.close();
    impostor.send({ opcode: sendOnly, psn: psn(0) }, pattern(4));
    assert.deepEqual(await end.receivedStatuses(), ['8:LOC_PROT_ERR']);
    assert.deepEqual(await nextAnswer(victim), [psn(0), nak | nakCodes.operation, 0]);
  });

  test('a SEND of many packets goes over the end of the numbers, and is acknowledged when asked', async () => {
    using victim = new Victim();
    const { end, impostor } = victim;
    const data = pattern(4 * 1024 + 77);
    end.receive(1, 0, 8192);
    for (let index = 0; index < 5; index++) {
      const opcode = index === 0 ? sendFirst : index === 4 ? sendLastWithImm : sendMiddle;
      const isAckRequested = index === 4;
      impostor.send(
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
    assert.deepEqual(await nextAnswer(victim), [2, ack, 1]);
    assert.deepEqual(await impostor.settled(30), []);
  });

  test('without a request for it there is no acknowledgement; one is for all before it', async () => {
    using victim = new Victim();
    const { impostor } = victim;
    for (let index = 0; index < 7; index++) {
      impostor.send({ opcode: writeOnly, ...victim.at(index, 1), psn: psn(index) }, Uint8Array.of(index + 1));
    }
    await until('the writes are there', () => victim.end.bytes(6, 1)[0] === 7);
    assert.deepEqual(await impostor.settled(30), []);
    impostor.send({ opcode: writeOnly, ...victim.at(7, 1), psn: psn(7), isAckRequested: true }, Uint8Array.of(8));
    assert.deepEqual(await nextAnswer(victim), [psn(7), ack, 8]);
    assert.deepEqual([...victim.end.bytes(0, 8)], [1, 2, 3, 4, 5, 6, 7, 8]);
  });

  test('a SEND or WRITE that comes again is acknowledged again and not carried out again', async () => {
    using victim = new Victim();
    const { end, impostor } = victim;
    end.receive(1, 0, 64);
    end.receive(2, 64, 64);
    const isAckRequested = true;
    impostor.send({ opcode: sendOnly, psn: psn(0), isAckRequested }, pattern(8, 1));
    impostor.send({ opcode: writeOnly, ...victim.at(200, 4), psn: psn(1), isAckRequested }, pattern(4, 2));
    await impostor.nextPsn(psn(1));
    end.bytes(200, 4).fill(0);
    for (const index of [0, 1]) {
      const fields = index === 0 ? { opcode: sendOnly } : { opcode: writeOnly, ...victim.at(200, 4) };
      impostor.send({ ...fields, psn: psn(index), isAckRequested }, pattern(index === 0 ? 8 : 4, 3));
      assert.deepEqual(await nextAnswer(victim), [psn(1), ack, 2]);
    }
    assert.deepEqual([...end.bytes(200, 4)], [0, 0, 0, 0]);
    assert.deepEqual(await end.receivedStatuses(), ['1:SUCCESS']);
    assert.deepEqual(end.bytes(0, 8), pattern(8, 1));
    assert.deepEqual(reap(end.receiveCq), []);
    impostor.send({ opcode: sendOnly, psn: psn(2), isAckRequested }, pattern(3, 4));
    assert.deepEqual(await end.receivedStatuses(), ['2:SUCCESS']);
  });

  test('a packet of a message under way that comes again does not disturb it', async () => {
    using victim = new Victim();
    const { end, impostor } = victim;
    end.receive(1, 0, 4096);
    const data = pattern(2048);
    impostor.send({ opcode: sendFirst, psn: psn(0) }, data.subarray(0, 1024));
    impostor.send({ opcode: sendFirst, psn: psn(0), isAckRequested: true }, pattern(1024, 99));
    // An acknowledgement in the middle of the message: its first packet has come, nothing is done.
    assert.deepEqual(await nextAnswer(victim), [psn(0), ack, 0]);
    impostor.send({ opcode: sendLast, psn: psn(1), isAckRequested: true }, data.subarray(1024));
    assert.deepEqual(await nextAnswer(victim), [psn(1), ack, 1]);
    assert.deepEqual(await end.receivedStatuses(), ['1:SUCCESS']);
    assert.deepEqual(end.bytes(0, 2048), data);
  });

  test('a gap is told once, with the number that is missing, and healed by going back', async () => {
    using victim = new Victim();
    const { end, impostor } = victim;
    const write = (index: number): void =>
      impostor.send(
        { opcode: writeOnly, ...victim.at(index, 1), psn: psn(index), isAckRequested: true },
        Uint8Array.of(index + 1),
      );
    write(0);
    assert.deepEqual(await nextAnswer(victim), [psn(0), ack, 1]);
    for (const index of [2, 3, 4]) write(index);
    assert.deepEqual(await nextAnswer(victim), [psn(1), nak | sequence, 1]);
    write(5);
    assert.deepEqual(await impostor.settled(50), []);
    assert.deepEqual([...end.bytes(0, 6)], [1, 0, 0, 0, 0, 0]);
    for (const index of [1, 2, 3, 4, 5]) write(index);
    const last = await impostor.nextPsn(psn(5));
    assert.deepEqual(answer(last), [psn(5), ack, 6]);
    assert.deepEqual([...end.bytes(0, 6)], [1, 2, 3, 4, 5, 6]);
    // A new gap is a new reason to complain.
    write(8);
    assert.deepEqual(await nextAnswer(victim), [psn(6), nak | sequence, 6]);
  });

  test('a READ is answered in packets of the MTU, first to last', async () => {
    using victim = new Victim();
    const { end, impostor } = victim;
    const data = pattern(3 * 1024 + 5);
    end.bytes(64, data.length).set(data);
    impostor.send({ opcode: readRequest, ...victim.at(64, data.length), psn: psn(0) });
    const kinds = [readResponseFirst, readResponseMiddle, readResponseMiddle, readResponseLast];
    for (const [index, opcode] of kinds.entries()) {
      const one = await impostor.next('an answer');
      assert.deepEqual([one.opcode, one.psn, one.destQp], [opcode, psn(index), IMPOSTOR_QP]);
      assert.deepEqual(one.payload, data.slice(index * 1024, index * 1024 + 1024));
      if (opcode !== readResponseMiddle) assert.deepEqual([one.syndrome, one.msn], [ack, 1]);
    }
    // The numbers of its answer are taken.
    impostor.send({ opcode: readRequest, ...victim.at(64, 7), psn: psn(4) });
    const only = await impostor.next('an answer');
    assert.deepEqual([only.opcode, only.psn, only.msn], [readResponseOnly, psn(4), 2]);
    assert.deepEqual(only.payload, data.slice(0, 7));
    impostor.send({ opcode: readRequest, ...victim.at(0, 0), rkey: 0, psn: psn(5) });
    const empty = await impostor.next('an answer');
    assert.deepEqual([empty.opcode, empty.psn, empty.payloadBytes], [readResponseOnly, psn(5), 0]);
  });

  test('a READ that comes again is answered again, also from its middle, with what is there then', async () => {
    using victim = new Victim();
    const { end, impostor } = victim;
    impostor.send({ opcode: readRequest, ...victim.at(0, 3000), psn: psn(0) });
    await impostor.nextPsn(psn(2), readResponseLast);
    end.bytes(0, 3000).set(pattern(3000, 5));
    impostor.send({ opcode: readRequest, ...victim.at(0, 3000), psn: psn(0) });
    for (const index of [0, 1, 2]) {
      assert.deepEqual(
        (await impostor.nextPsn(psn(index))).payload,
        pattern(3000, 5).slice(index * 1024, index * 1024 + 1024),
      );
    }
    impostor.send({ opcode: readRequest, ...victim.at(1024, 1976), psn: psn(1) });
    const again = [await impostor.next('an answer'), await impostor.next('an answer')];
    assert.deepEqual(
      again.map(({ opcode, psn: number }) => [opcode, number]),
      [
        [readResponseFirst, psn(1)],
        [readResponseLast, psn(2)],
      ],
    );
    assert.deepEqual(again[0]?.payload, pattern(3000, 5).slice(1024, 2048));
    // Nothing of it is counted twice.
    impostor.send({ opcode: writeOnly, ...victim.at(0, 0), psn: psn(3), isAckRequested: true });
    assert.deepEqual(await nextAnswer(victim), [psn(3), ack, 2]);
  });

  test('a READ that comes again after its key was revoked is refused by its own number', async () => {
    using victim = new Victim();
    const { end, impostor } = victim;
    const other = end.pd.allocate({ sizeBytes: 4096, access: access.remoteRead });
    const place = {
      addressHigh: Math.floor(other.address / 2 ** 32),
      addressLow: other.address % 2 ** 32,
      rkey: other.rkey,
    };
    impostor.send({ opcode: readRequest, ...place, dmaLength: 2048, psn: psn(0) });
    await impostor.nextPsn(psn(1), readResponseLast);
    other.close();
    impostor.send({ opcode: readRequest, ...place, dmaLength: 2048, psn: psn(0) });
    assert.deepEqual(await nextAnswer(victim), [psn(0), nak | accessCode, 1]);
  });

  test('a READ that comes again and asks for more than before gets what it asked for before', async () => {
    using victim = new Victim();
    const { impostor } = victim;
    impostor.send({ opcode: readRequest, ...victim.at(0, 2048), psn: psn(0) });
    await impostor.nextPsn(psn(1), readResponseLast);
    impostor.send({ opcode: readRequest, ...victim.at(1024, 3072), psn: psn(1) });
    const again = await impostor.next('an answer');
    assert.deepEqual([again.opcode, again.psn, again.payloadBytes], [readResponseOnly, psn(1), 1024]);
    impostor.send({ opcode: readRequest, ...victim.at(2048, 2048), psn: psn(2) });
    assert.equal((await impostor.next('an answer')).psn, psn(2));
    assert.equal((await impostor.next('an answer')).opcode, readResponseLast);
    assert.deepEqual(await impostor.settled(30), []);
  });

  test('more READs at once than were agreed on are refused', async () => {
    using victim = new Victim({ attributes: { maxDestRdAtomic: 1 }, sizeBytes: 8 << 20 });
    const { impostor } = victim;
    // In one turn, so that the first is not answered yet.
    for (const index of [0, 1]) {
      impostor.send({ opcode: readRequest, ...victim.at(0, 4 << 20), psn: psn(index * 4096) });
    }
    const refusal = await impostor.next('a refusal', ({ opcode }) => opcode === acknowledge);
    assert.equal(refusal.syndrome, nak | invalid);
  });

  test('atomics are carried out once, and answered from memory when they come again', async () => {
    using victim = new Victim();
    const { end, impostor } = victim;
    const word = new BigUint64Array(end.mr.bytes.buffer, end.mr.bytes.byteOffset, 2);
    word[0] = 0x1_0000_0005n;
    const add = { opcode: fetchAdd, ...victim.at(0), swapHigh: 1, swapLow: 0xffff_ffff, psn: psn(0) };
    const swap = {
      opcode: compareSwap,
      ...victim.at(0),
      compareHigh: 3,
      compareLow: 4,
      swapHigh: 7,
      swapLow: 8,
      psn: psn(1),
    };
    const original = async (index: number): Promise<[number, number, number]> => {
      const one = await impostor.next('an answer');
      assert.deepEqual([one.opcode, one.psn, one.syndrome], [atomicAcknowledge, psn(index), ack]);
      return [one.originalHigh, one.originalLow, one.msn];
    };
    impostor.send(add);
    assert.deepEqual(await original(0), [1, 5, 1]);
    assert.equal(word[0], 0x3_0000_0004n);
    impostor.send(add);
    assert.deepEqual(await original(0), [1, 5, 1]);
    assert.equal(word[0], 0x3_0000_0004n);
    impostor.send(swap);
    assert.deepEqual(await original(1), [3, 4, 2]);
    assert.equal(word[0], 0x7_0000_0008n);
    // The swap would succeed again if it were carried out again.
    word[0] = 0x3_0000_0004n;
    impostor.send(swap);
    assert.deepEqual(await original(1), [3, 4, 2]);
    assert.equal(word[0], 0x3_0000_0004n);
    impostor.send(add);
    assert.deepEqual(await original(0), [1, 5, 2]);
    impostor.send({ ...swap, psn: psn(2), compareLow: 5 });
    assert.deepEqual(await original(2), [3, 4, 3]);
    assert.equal(word[0], 0x3_0000_0004n, 'a comparison that fails');
  });

  test('an atomic sees what was written just before it', async () => {
    using victim = new Victim();
    const { impostor } = victim;
    impostor.send({ opcode: writeOnly, ...victim.at(8, 8), psn: psn(0) }, Uint8Array.of(9, 0, 0, 0, 0, 0, 0, 0));
    impostor.send({ opcode: fetchAdd, ...victim.at(8), swapLow: 1, psn: psn(1) });
    assert.equal((await impostor.nextPsn(psn(1), atomicAcknowledge)).originalLow, 9);
    assert.equal(victim.end.bytes(8, 1)[0], 10);
  });

  test('without a receive the peer is told to wait, what is behind it is dropped, and then it goes on', async () => {
    using victim = new Victim({ attributes: { minRnrTimer: 13 } });
    const { end, impostor } = victim;
    const sends = (): void => {
      impostor.send({ opcode: sendOnly, psn: psn(0), isAckRequested: true }, pattern(4));
      impostor.send({ opcode: writeOnly, ...victim.at(100, 1), psn: psn(1), isAckRequested: true }, Uint8Array.of(1));
    };
    sends();
    assert.deepEqual(await nextAnswer(victim), [psn(0), rnrNak | 13, 0]);
    assert.deepEqual(await impostor.settled(30), []);
    assert.equal(end.bytes(100, 1)[0], 0);
    sends();
    assert.deepEqual(await nextAnswer(victim), [psn(0), rnrNak | 13, 0]);
    end.receive(1, 0, 4);
    sends();
    assert.deepEqual(answer(await impostor.nextPsn(psn(1))), [psn(1), ack, 2]);
    assert.deepEqual(await end.receivedStatuses(), ['1:SUCCESS']);
    assert.equal(end.bytes(100, 1)[0], 1);
  });

  test('a WRITE with data waits for a receive at its last packet, and what came before it stays', async () => {
    using victim = new Victim({ attributes: { minRnrTimer: 1 } });
    const { end, impostor } = victim;
    const data = pattern(1500);
    const last = { opcode: writeLastWithImm, psn: psn(1), imm: 5, isAckRequested: true };
    impostor.send({ opcode: writeFirst, ...victim.at(0, 1500), psn: psn(0) }, data.subarray(0, 1024));
    impostor.send(last, data.subarray(1024));
    assert.deepEqual(await nextAnswer(victim), [psn(1), rnrNak | 1, 0]);
    end.receive(3, 4096, 0);
    impostor.send(last, data.subarray(1024));
    const [completion] = await end.received();
    assert.deepEqual([completion?.wrId, completion?.opcode, completion?.imm], [3, 'receiveWriteWithImm', 5]);
    assert.equal(completion?.byteLength, 1500);
    assert.deepEqual(await nextAnswer(victim), [psn(1), ack, 1]);
    assert.deepEqual(end.bytes(0, 1500), data);
    // In one packet as well.
    const only = { opcode: writeOnlyWithImm, ...victim.at(0, 4), psn: psn(2), imm: 6, isAckRequested: true };
    impostor.send(only, pattern(4, 1));
    assert.deepEqual(await nextAnswer(victim), [psn(2), rnrNak | 1, 1]);
    end.receive(4, 4096, 0);
    impostor.send(only, pattern(4, 1));
    assert.deepEqual(await nextAnswer(victim), [psn(2), ack, 2]);
  });

  test('only the solicited bit of the last packet wakes who asked for solicited completions', async () => {
    using victim = new Victim();
    const { end, impostor } = victim;
    for (const wrId of [1, 2]) end.receive(wrId, 0, 64);
    const events: number[] = [];
    end.receiveCq.arm(true);
    impostor.send({ opcode: sendOnlyWithImm, psn: psn(0), imm: 1, isAckRequested: true });
    await impostor.nextPsn(psn(0));
    const { channel } = end.receiveCq;
    assert.ok(channel !== undefined);
    events.push(channel.take().length);
    impostor.send({ opcode: sendOnlyWithImm, psn: psn(1), imm: 1, isSolicited: true, isAckRequested: true });
    await impostor.nextPsn(psn(1));
    events.push(channel.take().length);
    assert.deepEqual(events, [0, 1]);
  });

  test('an event finds in place what has completed, and its listener may close the memory', async () => {
    using victim = new Victim();
    const { device, end, impostor } = victim;
    const srq = end.pd.createSrq();
    const mr = end.pd.allocate({ sizeBytes: 4096 });
    using receives = new ReceiveBatch();
    for (let wrId = 0; wrId < 3; wrId++) receives.receive(wrId).sge(mr.lkey, mr.address + wrId * 64, 64);
    srq.post(receives);
    srq.setLimit(2);
    const qp = end.createQp({ srq });
    const peer = { device, qpNumber: IMPOSTOR_QP, psn: PSN };
    climb(qp, 'RTS', PSN, peer, { attributes: { path: { gid: impostor.gid }, pathMtu: 1024 } });
    impostor.victimQp = qp.number;
    const seen: Uint8Array[] = [];
    device.events.on('srqLimit', () => {
      for (const { wrId } of reap(end.receiveCq)) seen.push(mr.bytes.slice(wrId * 64, wrId * 64 + 4));
      mr.close();
    });
    for (const index of [0, 1, 2]) impostor.send({ opcode: sendOnly, psn: psn(index) }, pattern(4, index));
    await until('the QP is in error', () => qp.state === 'ERR');
    assert.deepEqual(seen, [pattern(4, 0)]);
    assert.deepEqual(await end.receivedStatuses(), ['1:LOC_PROT_ERR']);
  });

  test('a QP in RTR answers, too', async () => {
    using victim = new Victim({ state: 'RTR' });
    victim.impostor.send(
      { opcode: writeOnly, ...victim.at(0, 1), psn: psn(0), isAckRequested: true },
      Uint8Array.of(1),
    );
    assert.deepEqual(await nextAnswer(victim), [psn(0), ack, 1]);
  });

  test('every request is counted, also over the end of the numbers', async () => {
    using victim = new Victim();
    const { impostor } = victim;
    for (let index = 0; index < 5; index++) {
      impostor.send({ opcode: writeOnly, ...victim.at(0, 0), psn: psn(index), isAckRequested: true });
      assert.deepEqual(await nextAnswer(victim), [psn(index), ack, index + 1]);
    }
  });
});
