// What a QP sends, and what it makes of the answers, packet by packet.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { reap, settle } from '../../../../test/conformance/wait.ts';
import { sendFlags } from '../../index.ts';
import { addSequence, sequenceDistance } from '../sequence.ts';
import type { Arrival, RoceImpostor } from './fixtures/impostor.ts';
import { IMPOSTOR_QP, pattern, psn, Victim } from './fixtures/victim.ts';
import { operations } from './opcode.ts';
import { nakCodes, syndromes } from './packet.ts';

const { ack, nak, rnrNak } = syndromes;
const { sendFirst, sendMiddle, sendLast, sendOnly, sendLastWithImm } = operations;
const { writeFirst, writeMiddle, writeLast, writeOnly, writeOnlyWithImm, readRequest } = operations;
const { readResponseFirst, readResponseMiddle, readResponseLast, readResponseOnly } = operations;
const { acknowledge, atomicAcknowledge, fetchAdd, compareSwap } = operations;
const MTU = 1024;
/** Of the impostor's memory, which is made up. */
const REMOTE = 0x12_3456_7000;
const RKEY = 0xabcd_ef01;

const addressOf = ({ addressHigh, addressLow }: Arrival): number => addressHigh * 2 ** 32 + addressLow;

/** What the impostor's memory holds at an address. */
function remoteByte(address: number): number {
  return (address * 11 + (address >>> 8)) & 0xff;
}

function remoteBytes(address: number, length: number): Uint8Array {
  return Uint8Array.from({ length }, (_, at) => remoteByte(address + at));
}

/** Answers a READ as it was asked, without the packets in `lost`. */
function respond(impostor: RoceImpostor, request: Arrival, lost: readonly number[] = []): void {
  const { dmaLength } = request;
  const packets = Math.max(1, Math.ceil(dmaLength / MTU));
  for (let index = 0; index < packets; index++) {
    const number = addSequence(request.psn, index);
    if (lost.includes(number)) continue;
    const isLast = index === packets - 1;
    const opcode =
      index === 0 ? (isLast ? readResponseOnly : readResponseFirst) : isLast ? readResponseLast : readResponseMiddle;
    const payload = remoteBytes(addressOf(request) + index * MTU, Math.min(MTU, dmaLength - index * MTU));
    impostor.send({ opcode, psn: number, syndrome: ack }, payload);
  }
}

describe('RoCE requester', () => {
  test('a SEND is cut into packets of the MTU, over the end of the numbers', async () => {
    using victim = new Victim();
    const { end, impostor } = victim;
    const data = pattern(3 * MTU + 10);
    end.bytes(0, data.length).set(data);
    const flags = sendFlags.signaled | sendFlags.solicited;
    end.post((batch) => batch.sendWithImm(1, 0xcafe_f00d, flags).sge(...end.at(0, data.length)));
    const came: Arrival[] = [];
    for (let index = 0; index < 4; index++) came.push(await impostor.next('a packet'));
    assert.deepEqual(
      came.map((one) => [one.opcode, one.psn, one.isAckRequested, one.isSolicited, one.destQp]),
      [
        [sendFirst, psn(0), false, false, IMPOSTOR_QP],
        [sendMiddle, psn(1), false, false, IMPOSTOR_QP],
        [sendMiddle, psn(2), false, false, IMPOSTOR_QP],
        [sendLastWithImm, psn(3), true, true, IMPOSTOR_QP],
      ],
    );
    assert.equal(came[3]?.imm, 0xcafe_f00d);
    assert.deepEqual(new Uint8Array(Buffer.concat(came.map(({ payload }) => payload))), data);
    impostor.acknowledge(psn(3));
    assert.deepEqual(await end.sentStatuses(), ['1:SUCCESS']);
  });

  test('a WRITE says at its start where to, under which key and how much', async () => {
    using victim = new Victim();
    const { end, impostor } = victim;
    end.post((batch) => {
      batch.write(1, REMOTE, RKEY).sge(...end.at(0, 2 * MTU + 1));
      batch.writeWithImm(2, REMOTE + 5, RKEY, 77).sge(...end.at(0, 3));
      batch.write(3, REMOTE, RKEY);
    });
    const first = await impostor.nextPsn(psn(0));
    assert.deepEqual(
      [first.opcode, addressOf(first), first.rkey, first.dmaLength],
      [writeFirst, REMOTE, RKEY, 2 * MTU + 1],
    );
    assert.equal((await impostor.nextPsn(psn(1))).opcode, writeMiddle);
    const last = await impostor.nextPsn(psn(2));
    assert.deepEqual([last.opcode, last.payloadBytes, last.padBytes, last.isAckRequested], [writeLast, 1, 3, true]);
    const only = await impostor.nextPsn(psn(3));
    assert.deepEqual([only.opcode, addressOf(only), only.dmaLength, only.imm], [writeOnlyWithImm, REMOTE + 5, 3, 77]);
    const empty = await impostor.nextPsn(psn(4));
    assert.deepEqual([empty.opcode, empty.dmaLength, empty.payloadBytes], [writeOnly, 0, 0]);
    impostor.acknowledge(psn(4));
    assert.deepEqual(await end.sentStatuses(3), ['1:SUCCESS', '2:SUCCESS', '3:SUCCESS']);
  });

  test('atomics carry their operands, and what was there comes back', async () => {
    using victim = new Victim();
    const { end, impostor } = victim;
    end.post((batch) => {
      batch.fetchAdd(1, REMOTE, RKEY, 2, 3).sge(...end.at(0, 8));
      batch.compareSwap(2, REMOTE + 8, RKEY, 4, 5, 6, 7).sge(...end.at(8, 8));
    });
    const add = await impostor.nextPsn(psn(0), fetchAdd);
    assert.deepEqual([addressOf(add), add.rkey, add.swapLow, add.swapHigh], [REMOTE, RKEY, 2, 3]);
    const swap = await impostor.nextPsn(psn(1), compareSwap);
    const { compareLow, compareHigh, swapLow, swapHigh } = swap;
    assert.deepEqual([addressOf(swap), compareLow, compareHigh, swapLow, swapHigh], [REMOTE + 8, 4, 5, 6, 7]);
    for (const index of [0, 1]) {
      impostor.send({ opcode: atomicAcknowledge, psn: psn(index), syndrome: ack, originalHigh: 9, originalLow: index });
    }
    assert.deepEqual(await end.sentStatuses(2), ['1:SUCCESS', '2:SUCCESS']);
    assert.deepEqual([...new Uint32Array(end.bytes(0, 16).slice().buffer)], [0, 9, 1, 9]);
  });

  test('one acknowledgement completes all requests before it, in order', async () => {
    using victim = new Victim();
    const { end, impostor } = victim;
    end.post((batch) => {
      for (let wrId = 0; wrId < 6; wrId++) batch.send(wrId).sge(...end.at(0, 8));
    });
    await impostor.nextPsn(psn(5));
    impostor.acknowledge(psn(4));
    const statuses = ['0:SUCCESS', '1:SUCCESS', '2:SUCCESS', '3:SUCCESS', '4:SUCCESS'];
    assert.deepEqual(await end.sentStatuses(5), statuses);
    assert.deepEqual(reap(end.sendCq), []);
    impostor.acknowledge(psn(5));
    assert.deepEqual(await end.sentStatuses(), ['5:SUCCESS']);
  });

  test('an acknowledgement of what was never sent, or long ago, or of an unknown kind is ignored', async () => {
    using victim = new Victim();
    const { end, impostor } = victim;
    end.post((batch) => batch.send(1).sge(...end.at(0, 8)));
    await impostor.nextPsn(psn(0));
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
      impostor.acknowledge(number, syndrome);
    }
    assert.deepEqual(await settle(end.sendCq, 50), []);
    assert.equal(end.qp.state, 'RTS');
    impostor.acknowledge(psn(0));
    assert.deepEqual(await end.sentStatuses(), ['1:SUCCESS']);
  });

  for (const [code, status] of [
    [nakCodes.invalid, 'REM_INV_REQ_ERR'],
    [nakCodes.access, 'REM_ACCESS_ERR'],
    [nakCodes.operation, 'REM_OP_ERR'],
  ] as const) {
    test(`a refusal with code ${code} is ${status}, after what came before it has completed`, async () => {
      using victim = new Victim();
      const { end, impostor } = victim;
      end.post((batch) => {
        for (let wrId = 0; wrId < 3; wrId++) batch.send(wrId).sge(...end.at(0, 2 * MTU));
      });
      await impostor.nextPsn(psn(5));
      // The second packet of the second request.
      impostor.acknowledge(psn(3), nak | code);
      assert.deepEqual(await end.sentStatuses(3), ['0:SUCCESS', `1:${status}`, '2:WR_FLUSH_ERR']);
      assert.equal(end.qp.state, 'ERR');
    });
  }

  test('a lost acknowledgement: what is unanswered is sent again, and completes once', async () => {
    using victim = new Victim();
    const { end, impostor } = victim;
    end.post((batch) => batch.send(1).sge(...end.at(0, 8)));
    const first = await impostor.nextPsn(psn(0), sendOnly);
    const second = await impostor.nextPsn(psn(0), sendOnly);
    assert.deepEqual(second.payload, first.payload);
    assert.equal(second.isAckRequested, true);
    impostor.acknowledge(psn(0));
    impostor.acknowledge(psn(0));
    assert.deepEqual(await end.sentStatuses(), ['1:SUCCESS']);
    assert.deepEqual(await settle(end.sendCq, 30), []);
  });

  test('an acknowledgement within a message completes nothing, and what is sent again starts behind it', async () => {
    using victim = new Victim();
    const { end, impostor } = victim;
    end.bytes(0, 4 * MTU).set(pattern(4 * MTU));
    end.post((batch) => batch.write(1, REMOTE, RKEY).sge(...end.at(0, 4 * MTU)));
    await impostor.nextPsn(psn(3), writeLast);
    impostor.acknowledge(psn(1));
    await impostor.settled(5);
    // Meanwhile the last packet may come again: it asks what has become of all.
    impostor.acknowledge(psn(2), nak | nakCodes.sequence);
    const again = await impostor.next('the rest again', ({ psn: number }) => number !== psn(3));
    assert.deepEqual([again.opcode, again.psn], [writeMiddle, psn(2)]);
    assert.deepEqual(again.payload, pattern(4 * MTU).slice(2 * MTU, 3 * MTU));
    assert.deepEqual(reap(end.sendCq), []);
    impostor.acknowledge(psn(3));
    assert.deepEqual(await end.sentStatuses(), ['1:SUCCESS']);
  });

  test('a gap is gone back to, and what is before it completes', async () => {
    using victim = new Victim();
    const { end, impostor } = victim;
    end.post((batch) => {
      for (let wrId = 0; wrId < 5; wrId++) batch.send(wrId).sge(...end.at(0, 8));
    });
    const first = await impostor.nextPsn(psn(4));
    impostor.acknowledge(psn(2), nak | nakCodes.sequence);
    assert.deepEqual(await end.sentStatuses(2), ['0:SUCCESS', '1:SUCCESS']);
    const again = [await impostor.nextPsn(psn(2)), await impostor.nextPsn(psn(3)), await impostor.nextPsn(psn(4))];
    // Because it was asked for, not because time has passed.
    assert.ok((again[0]?.atMs ?? 0) - first.atMs < 100);
    impostor.acknowledge(psn(4));
    assert.deepEqual(await end.sentStatuses(3), ['2:SUCCESS', '3:SUCCESS', '4:SUCCESS']);
  });

  test('a gap whose report is lost is found long before the timeout', async () => {
    using victim = new Victim();
    const { end, impostor } = victim;
    end.post((batch) => {
      for (let wrId = 0; wrId < 5; wrId++) batch.send(wrId).sge(...end.at(0, 8));
    });
    // The third is lost, and so is the word of it. Whoever said it once does not say it again.
    const first = await impostor.nextPsn(psn(2));
    await impostor.nextPsn(psn(4));
    const again = await impostor.nextPsn(psn(2));
    assert.ok(again.atMs - first.atMs < 250, `${again.atMs - first.atMs} ms`);
    impostor.acknowledge(psn(4));
    assert.equal((await end.sentStatuses(5)).length, 5);
  });

  test('gaps without end use up the retries', async () => {
    using victim = new Victim({ attributes: { retryCount: 3 } });
    const { end, impostor } = victim;
    end.post((batch) => batch.send(1).sge(...end.at(0, 8)));
    for (let times = 0; times < 4; times++) {
      await impostor.nextPsn(psn(0));
      await impostor.settled(3);
      impostor.acknowledge(psn(0), nak | nakCodes.sequence);
    }
    assert.deepEqual(await end.sentStatuses(), ['1:RETRY_EXC_ERR']);
  });

  test('a peer that is not ready gets the time it asked for, and then the request again', async () => {
    using victim = new Victim();
    const { end, impostor } = victim;
    end.post((batch) =>
      batch
        .send(1)
        .sge(...end.at(0, 8))
        .send(2)
        .sge(...end.at(0, 8)),
    );
    await impostor.nextPsn(psn(1));
    await impostor.settled(1);
    const startMs = performance.now();
    // 40.96 ms, four times as long as a probe takes.
    impostor.acknowledge(psn(0), rnrNak | 24);
    await impostor.settled(5);
    const again = await impostor.next('the request again');
    assert.equal(again.psn, psn(0));
    assert.ok(again.atMs - startMs >= 40.9, `${again.atMs - startMs} ms`);
    await impostor.nextPsn(psn(1));
    impostor.acknowledge(psn(1));
    assert.deepEqual(await end.sentStatuses(2), ['1:SUCCESS', '2:SUCCESS']);
  });

  test('a peer that stays not ready is RNR_RETRY_EXC_ERR after as many tries as were set', async () => {
    using victim = new Victim({ attributes: { rnrRetry: 2 } });
    const { end, impostor } = victim;
    end.post((batch) =>
      batch
        .send(1)
        .sge(...end.at(0, 8))
        .send(2)
        .sge(...end.at(0, 8)),
    );
    for (let times = 0; times < 3; times++) {
      await impostor.nextPsn(psn(0));
      await impostor.settled(2);
      assert.deepEqual(reap(end.sendCq), []);
      impostor.acknowledge(psn(0), rnrNak | 20);
    }
    assert.deepEqual(await end.sentStatuses(2), ['1:RNR_RETRY_EXC_ERR', '2:WR_FLUSH_ERR']);
  });

  test('with 7 there is no end to the patience with a peer that is not ready', async () => {
    using victim = new Victim({ attributes: { rnrRetry: 7, retryCount: 1 } });
    const { end, impostor } = victim;
    end.post((batch) => batch.send(1).sge(...end.at(0, 8)));
    for (let times = 0; times < 20; times++) {
      await impostor.nextPsn(psn(0));
      impostor.acknowledge(psn(0), rnrNak | 1);
    }
    await impostor.nextPsn(psn(0));
    impostor.acknowledge(psn(0));
    assert.deepEqual(await end.sentStatuses(), ['1:SUCCESS']);
  });

  for (const [timeout, retryCount] of [
    [17, 0],
    [15, 1],
  ] as const) {
    const expectedMs = ((retryCount + 1) * 4.096 * 2 ** timeout) / 1000;
    test(`silence is RETRY_EXC_ERR after about ${Math.round(expectedMs)} ms with timeout ${timeout} and ${retryCount} retries`, async () => {
      using victim = new Victim({ attributes: { timeout, retryCount } });
      const { end } = victim;
      const startMs = performance.now();
      end.post((batch) =>
        batch
          .send(1)
          .sge(...end.at(0, 8))
          .send(2)
          .sge(...end.at(0, 8)),
      );
      assert.deepEqual(await end.sentStatuses(2), ['1:RETRY_EXC_ERR', '2:WR_FLUSH_ERR']);
      const tookMs = performance.now() - startMs;
      assert.ok(tookMs >= expectedMs * 0.98 && tookMs < expectedMs * 1.6, `${tookMs} ms`);
    });
  }

  test('an answer puts an end to the silence: retries are counted anew', async () => {
    using victim = new Victim({ attributes: { timeout: 12, retryCount: 1 } });
    const { end, impostor } = victim;
    end.post((batch) => {
      for (let wrId = 0; wrId < 6; wrId++) batch.send(wrId).sge(...end.at(0, 8));
    });
    // Each is acknowledged only when it has come three times.
    for (let index = 0; index < 6; index++) {
      for (let times = 0; times < 2; times++) await impostor.nextPsn(psn(index));
      impostor.acknowledge(psn(index));
      assert.deepEqual(await end.sentStatuses(), [`${index}:SUCCESS`]);
    }
  });

  test('the answer to a READ goes to its memory, and completes it and what was before it', async () => {
    using victim = new Victim();
    const { end, impostor } = victim;
    end.post((batch) => {
      batch.send(1).sge(...end.at(0, 8));
      batch
        .read(2, REMOTE, RKEY)
        .sge(...end.at(0, 1000))
        .sge(...end.at(4096, 2 * MTU));
    });
    const request = await impostor.nextPsn(psn(1), readRequest);
    assert.deepEqual([addressOf(request), request.rkey, request.dmaLength], [REMOTE, RKEY, 1000 + 2 * MTU]);
    respond(impostor, request);
    assert.deepEqual(await end.sentStatuses(2), ['1:SUCCESS', '2:SUCCESS']);
    assert.deepEqual(end.bytes(0, 1000), remoteBytes(REMOTE, 1000));
    assert.deepEqual(end.bytes(4096, 2 * MTU), remoteBytes(REMOTE + 1000, 2 * MTU));
    // The numbers of the answer are taken.
    end.post((batch) => batch.send(3).sge(...end.at(0, 8)));
    await impostor.nextPsn(psn(4), sendOnly);
  });

  test('when a part of the answer to a READ is lost, it is asked for from there on', async () => {
    using victim = new Victim();
    const { end, impostor } = victim;
    const bytes = 6 * MTU + 17;
    end.post((batch) =>
      batch
        .read(1, REMOTE, RKEY)
        .sge(...end.at(0, bytes))
        .send(2)
        .sge(...end.at(0, 0)),
    );
    respond(impostor, await impostor.nextPsn(psn(0), readRequest), [psn(2)]);
    const again = await impostor.nextPsn(psn(2), readRequest);
    assert.deepEqual([addressOf(again), again.dmaLength], [REMOTE + 2 * MTU, bytes - 2 * MTU]);
    assert.deepEqual(reap(end.sendCq), []);
    respond(impostor, again);
    impostor.acknowledge(psn(7));
    assert.deepEqual(await end.sentStatuses(2), ['1:SUCCESS', '2:SUCCESS']);
    assert.deepEqual(end.bytes(0, bytes), remoteBytes(REMOTE, bytes));
  });

  test('an acknowledgement that skips the answer to a READ or an atomic makes it ask again', async () => {
    using victim = new Victim();
    const { end, impostor } = victim;
    end.post((batch) =>
      batch
        .read(1, REMOTE, RKEY)
        .sge(...end.at(0, 8))
        .send(2)
        .sge(...end.at(0, 8)),
    );
    await impostor.nextPsn(psn(1));
    impostor.acknowledge(psn(1));
    respond(impostor, await impostor.nextPsn(psn(0), readRequest));
    await impostor.nextPsn(psn(1));
    impostor.acknowledge(psn(1));
    assert.deepEqual(await end.sentStatuses(2), ['1:SUCCESS', '2:SUCCESS']);
    end.post((batch) =>
      batch
        .fetchAdd(3, REMOTE, RKEY, 1)
        .sge(...end.at(0, 8))
        .send(4)
        .sge(...end.at(0, 8)),
    );
    await impostor.nextPsn(psn(3));
    impostor.acknowledge(psn(3));
    await impostor.nextPsn(psn(2), fetchAdd);
    impostor.send({ opcode: atomicAcknowledge, psn: psn(2), syndrome: ack });
    impostor.acknowledge(psn(3));
    assert.deepEqual(await end.sentStatuses(2), ['3:SUCCESS', '4:SUCCESS']);
  });

  for (const [name, opcode, payloadBytes] of [
    ['shorter', readResponseOnly, 7],
    ['longer', readResponseOnly, 9],
    ['empty', readResponseOnly, 0],
  ] as const) {
    test(`an answer to a READ that is ${name} than it should be is BAD_RESP_ERR`, async () => {
      using victim = new Victim();
      const { end, impostor } = victim;
      end.bytes(0, 64).fill(0xee);
      end.post((batch) => batch.read(1, REMOTE, RKEY).sge(...end.at(0, 8)));
      await impostor.nextPsn(psn(0), readRequest);
      impostor.send({ opcode, psn: psn(0), syndrome: ack }, pattern(payloadBytes));
      assert.deepEqual(await end.sentStatuses(), ['1:BAD_RESP_ERR']);
      assert.ok(end.bytes(0, 64).every((byte) => byte === 0xee));
    });
  }

  test('answers of the wrong kind, or that nobody asked for, are ignored', async () => {
    using victim = new Victim();
    const { end, impostor } = victim;
    end.bytes(0, 64).fill(0xee);
    impostor.send({ opcode: readResponseOnly, psn: psn(0), syndrome: ack }, pattern(8));
    impostor.send({ opcode: atomicAcknowledge, psn: psn(0), syndrome: ack });
    end.post((batch) =>
      batch
        .send(1)
        .sge(...end.at(0, 8))
        .read(2, REMOTE, RKEY)
        .sge(...end.at(8, 8)),
    );
    await impostor.nextPsn(psn(1), readRequest);
    impostor.send({ opcode: readResponseOnly, psn: psn(0), syndrome: ack }, pattern(8));
    impostor.send({ opcode: atomicAcknowledge, psn: psn(1), syndrome: ack });
    impostor.send({ opcode: readResponseOnly, psn: psn(2), syndrome: ack }, pattern(8));
    await impostor.settled(20);
    assert.ok(end.bytes(0, 64).every((byte) => byte === 0xee));
    assert.equal(end.qp.state, 'RTS');
    impostor.send({ opcode: readResponseOnly, psn: psn(1), syndrome: ack }, pattern(8));
    assert.deepEqual(await end.sentStatuses(2), ['1:SUCCESS', '2:SUCCESS']);
    // Once more, after it was taken.
    impostor.send({ opcode: readResponseOnly, psn: psn(1), syndrome: ack }, pattern(8, 1));
    await impostor.settled(20);
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
      using victim = new Victim({ sizeBytes: 1 << 19, attributes: { maxRdAtomic } });
      const { end, impostor } = victim;
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
        // A peer remembers what it was asked; half of one part and half of another is nothing it knows.
        assert.ok(sequenceDistance(partEnd, expected) <= 0, 'a gap');
        const across = ends.find((one) => sequenceDistance(one, request.psn) > 0 && sequenceDistance(partEnd, one) > 0);
        assert.equal(across, undefined, `from ${request.psn} to ${partEnd}`);
        ends.push(partEnd);
        const isLossy = !hasLost && sequenceDistance(partEnd, psn(lostAt)) > 0;
        if (isLossy) hasLost = true;
        respond(impostor, request, isLossy ? [psn(lostAt)] : []);
      };
      let completions = reap(end.sendCq);
      for (; completions.length === 0; completions = reap(end.sendCq)) {
        for (const request of await impostor.settled(1)) onRequest(request);
      }
      assert.ok(hasLost);
      assert.equal(completions[0]?.status, 'SUCCESS');
      assert.deepEqual(end.bytes(0, bytes), remoteBytes(REMOTE, bytes));
    });
  }

  test('no more READs and atomics are under way than were agreed on', async () => {
    using victim = new Victim({ attributes: { maxRdAtomic: 2 } });
    const { end, impostor } = victim;
    end.post((batch) => {
      for (let wrId = 0; wrId < 5; wrId++) batch.read(wrId, REMOTE, RKEY).sge(...end.at(wrId * 8, 8));
    });
    for (let index = 0; index < 5; index += 2) {
      const requests = [
        await impostor.nextPsn(psn(index)),
        ...(index < 4 ? [await impostor.nextPsn(psn(index + 1))] : []),
      ];
      const more = await impostor.settled(5);
      assert.ok(more.every((one) => sequenceDistance(one.psn, psn(index + 2)) < 0));
      for (const request of requests) respond(impostor, request);
    }
    assert.equal((await end.sentStatuses(5)).length, 5);
  });

  test('a message that is under way when its send queue is drained goes on, and what is lost is sent again', async () => {
    using victim = new Victim();
    const { end, impostor } = victim;
    end.post((batch) =>
      batch
        .send(1)
        .sge(...end.at(0, 2 * MTU))
        .send(2)
        .sge(...end.at(0, 8)),
    );
    await impostor.nextPsn(psn(2));
    end.qp.modify('SQD');
    end.post((batch) => batch.send(3).sge(...end.at(0, 8)));
    impostor.acknowledge(psn(1), nak | nakCodes.sequence);
    assert.equal((await impostor.nextPsn(psn(1))).opcode, sendLast);
    await impostor.nextPsn(psn(2));
    impostor.acknowledge(psn(2));
    assert.deepEqual(await end.sentStatuses(2), ['1:SUCCESS', '2:SUCCESS']);
    assert.deepEqual(
      (await impostor.settled(30)).filter(({ psn: number }) => number === psn(3)),
      [],
    );
    end.qp.modify('RTS');
    await impostor.nextPsn(psn(3));
    impostor.acknowledge(psn(3));
    assert.deepEqual(await end.sentStatuses(), ['3:SUCCESS']);
  });

  test('a peer that only counts its messages is asked for an acknowledgement often enough to go on', async () => {
    using victim = new Victim({ sizeBytes: 1 << 20 });
    const { end, impostor } = victim;
    const packets = 600;
    end.post((batch) => batch.write(1, REMOTE, RKEY).sge(...end.at(0, packets * MTU)));
    let expected = psn(0);
    while (expected !== psn(packets)) {
      const one = await impostor.next('a packet');
      if (one.psn === expected) expected = addSequence(expected, 1);
      // Never without being asked. What its socket had no room for it does not miss: it must be told again.
      if (one.isAckRequested) impostor.acknowledge(addSequence(expected, -1));
    }
    assert.deepEqual(await end.sentStatuses(), ['1:SUCCESS']);
  });

  test('an acknowledgement to a QP that has nothing under way changes nothing', async () => {
    using victim = new Victim();
    const { end, impostor } = victim;
    for (const syndrome of [ack, rnrNak | 1, nak | nakCodes.sequence, nak | nakCodes.access]) {
      for (const index of [-1, 0, 1]) impostor.acknowledge(psn(index), syndrome);
    }
    await impostor.settled(20);
    assert.equal(end.qp.state, 'RTS');
    end.post((batch) => batch.send(1).sge(...end.at(0, 8)));
    assert.equal((await impostor.nextPsn(psn(0))).opcode, sendOnly);
    impostor.send({ opcode: acknowledge, psn: psn(0), syndrome: 0, msn: 1 });
    assert.deepEqual(await end.sentStatuses(), ['1:SUCCESS']);
  });
});
