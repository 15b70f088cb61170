// What a QP sends again, when, and how often.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { reap, settle } from '../../../../test/conformance/wait.ts';
import { pattern, psn, QpUnderTest } from './fixtures/qp-under-test.ts';
import { MTU, REMOTE, RKEY } from './fixtures/remote-memory.ts';
import { operations } from './opcode.ts';
import { nakCodes, syndromes } from './packet.ts';

const { nak, rnrNak } = syndromes;
const { sendOnly, writeMiddle, writeLast } = operations;

describe('RoCE retransmission', () => {
  test('a lost acknowledgement: what is unanswered is sent again, and completes once', async () => {
    using tested = new QpUnderTest();
    const { end, rawPeer } = tested;
    end.post((batch) => batch.send(1).sge(...end.at(0, 8)));
    const first = await rawPeer.nextPsn(psn(0), sendOnly);
    const second = await rawPeer.nextPsn(psn(0), sendOnly);
    assert.deepEqual(second.payload, first.payload);
    assert.equal(second.isAckRequested, true);
    rawPeer.acknowledge(psn(0));
    rawPeer.acknowledge(psn(0));
    assert.deepEqual(await end.sentStatuses(), ['1:SUCCESS']);
    assert.deepEqual(await settle(end.sendCq, 30), []);
  });

  test('an acknowledgement within a message completes nothing, and what is sent again starts behind it', async () => {
    using tested = new QpUnderTest();
    const { end, rawPeer } = tested;
    end.bytes(0, 4 * MTU).set(pattern(4 * MTU));
    end.post((batch) => batch.write(1, REMOTE, RKEY).sge(...end.at(0, 4 * MTU)));
    await rawPeer.nextPsn(psn(3), writeLast);
    rawPeer.acknowledge(psn(1));
    await rawPeer.settled(5);
    // Meanwhile the last packet may come again: it asks what has become of all.
    rawPeer.acknowledge(psn(2), nak | nakCodes.sequence);
    const again = await rawPeer.next('the rest again', ({ psn: number }) => number !== psn(3));
    assert.deepEqual([again.opcode, again.psn], [writeMiddle, psn(2)]);
    assert.deepEqual(again.payload, pattern(4 * MTU).slice(2 * MTU, 3 * MTU));
    assert.deepEqual(reap(end.sendCq), []);
    rawPeer.acknowledge(psn(3));
    assert.deepEqual(await end.sentStatuses(), ['1:SUCCESS']);
  });

  test('a gap is gone back to, and what is before it completes', async () => {
    using tested = new QpUnderTest({ attributes: { timeout: 20 } });
    const { end, rawPeer } = tested;
    end.post((batch) => {
      for (let wrId = 0; wrId < 5; wrId++) batch.send(wrId).sge(...end.at(0, 8));
    });
    const first = await rawPeer.nextPsn(psn(4));
    rawPeer.acknowledge(psn(2), nak | nakCodes.sequence);
    assert.deepEqual(await end.sentStatuses(2), ['0:SUCCESS', '1:SUCCESS']);
    const again = [await rawPeer.nextPsn(psn(2)), await rawPeer.nextPsn(psn(3)), await rawPeer.nextPsn(psn(4))];
    // Because it was asked for, not because the 4 s of the timeout have passed.
    assert.ok((again[0]?.atMs ?? 0) - first.atMs < 2000);
    rawPeer.acknowledge(psn(4));
    assert.deepEqual(await end.sentStatuses(3), ['2:SUCCESS', '3:SUCCESS', '4:SUCCESS']);
  });

  test('a gap whose report is lost is found long before the timeout', async () => {
    using tested = new QpUnderTest({ attributes: { timeout: 20 } });
    const { end, rawPeer } = tested;
    end.post((batch) => {
      for (let wrId = 0; wrId < 5; wrId++) batch.send(wrId).sge(...end.at(0, 8));
    });
    // The third packet is lost, and so is the NAK. A peer that has sent a NAK does not send it
    // again.
    const first = await rawPeer.nextPsn(psn(2));
    await rawPeer.nextPsn(psn(4));
    const again = await rawPeer.nextPsn(psn(2));
    assert.ok(again.atMs - first.atMs < 2000, `${again.atMs - first.atMs} ms`);
    rawPeer.acknowledge(psn(4));
    assert.equal((await end.sentStatuses(5)).length, 5);
  });

  test('gaps without end use up the retries', async () => {
    using tested = new QpUnderTest({ attributes: { retryCount: 3 } });
    const { end, rawPeer } = tested;
    end.post((batch) => batch.send(1).sge(...end.at(0, 8)));
    for (let times = 0; times < 4; times++) {
      await rawPeer.nextPsn(psn(0));
      await rawPeer.settled(3);
      rawPeer.acknowledge(psn(0), nak | nakCodes.sequence);
    }
    assert.deepEqual(await end.sentStatuses(), ['1:RETRY_EXC_ERR']);
  });

  test('a peer that is not ready gets the time it asked for, and then the request again', async () => {
    using tested = new QpUnderTest();
    const { end, rawPeer } = tested;
    end.post((batch) =>
      batch
        .send(1)
        .sge(...end.at(0, 8))
        .send(2)
        .sge(...end.at(0, 8)),
    );
    await rawPeer.nextPsn(psn(1));
    await rawPeer.settled(1);
    const startMs = performance.now();
    // 40.96 ms, four times as long as a probe takes.
    rawPeer.acknowledge(psn(0), rnrNak | 24);
    await rawPeer.settled(5);
    const again = await rawPeer.next('the request again');
    assert.equal(again.psn, psn(0));
    assert.ok(again.atMs - startMs >= 40.9, `${again.atMs - startMs} ms`);
    await rawPeer.nextPsn(psn(1));
    rawPeer.acknowledge(psn(1));
    assert.deepEqual(await end.sentStatuses(2), ['1:SUCCESS', '2:SUCCESS']);
  });

  test('a peer that stays not ready is RNR_RETRY_EXC_ERR after as many tries as were set', async () => {
    using tested = new QpUnderTest({ attributes: { rnrRetry: 2 } });
    const { end, rawPeer } = tested;
    end.post((batch) =>
      batch
        .send(1)
        .sge(...end.at(0, 8))
        .send(2)
        .sge(...end.at(0, 8)),
    );
    for (let times = 0; times < 3; times++) {
      await rawPeer.nextPsn(psn(0));
      await rawPeer.settled(2);
      assert.deepEqual(reap(end.sendCq), []);
      rawPeer.acknowledge(psn(0), rnrNak | 20);
    }
    assert.deepEqual(await end.sentStatuses(2), ['1:RNR_RETRY_EXC_ERR', '2:WR_FLUSH_ERR']);
  });

  test('with 7 a peer that is not ready is retried without end', async () => {
    using tested = new QpUnderTest({ attributes: { rnrRetry: 7, retryCount: 1 } });
    const { end, rawPeer } = tested;
    end.post((batch) => batch.send(1).sge(...end.at(0, 8)));
    for (let times = 0; times < 20; times++) {
      await rawPeer.nextPsn(psn(0));
      rawPeer.acknowledge(psn(0), rnrNak | 1);
    }
    await rawPeer.nextPsn(psn(0));
    rawPeer.acknowledge(psn(0));
    assert.deepEqual(await end.sentStatuses(), ['1:SUCCESS']);
  });

  for (const [timeout, retryCount] of [
    [17, 0],
    [15, 1],
  ] as const) {
    const expectedMs = ((retryCount + 1) * 4.096 * 2 ** timeout) / 1000;
    test(`silence is RETRY_EXC_ERR after about ${Math.round(expectedMs)} ms with timeout ${timeout} and ${retryCount} retries`, async () => {
      using tested = new QpUnderTest({ attributes: { timeout, retryCount } });
      const { end } = tested;
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
      assert.ok(tookMs >= expectedMs * 0.98 && tookMs < expectedMs + 2000, `${tookMs} ms`);
    });
  }

  test('an answer puts an end to the silence: retries are counted anew', async () => {
    using tested = new QpUnderTest({ attributes: { timeout: 15, retryCount: 1 } });
    const { end, rawPeer } = tested;
    for (const index of [0, 1]) {
      end.post((batch) => batch.send(index).sge(...end.at(0, 8)));
      // At first, by three probes, and by the only retry.
      for (let times = 0; times < 5; times++) await rawPeer.nextPsn(psn(index));
      rawPeer.acknowledge(psn(index));
      assert.deepEqual(await end.sentStatuses(), [`${index}:SUCCESS`]);
    }
  });
});
