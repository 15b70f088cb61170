// A thousand QPs on two devices.
// Runs in a process of its own: it counts the descriptors of its process.

import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { describe, test } from 'node:test';
import { allAccess, connectPair } from '../../../test/conformance/connect.ts';
import { drain, turn } from '../../../test/conformance/wait.ts';
import { type Completion, type Mr, type Qp, ReceiveBatch, SendBatch } from '../index.ts';
import { openSoftPair, wires } from './fixtures/soft-pair.ts';

const QPS = 1000;
const SLOT = 64;

function openDescriptors(): number {
  return readdirSync('/proc/self/fd').length;
}

describe('a thousand QPs', () => {
  for (const wire of wires) {
    test(`a thousand QPs of two devices work at once over ${wire}, and closing them leaves nothing open`, async () => {
      const before = openDescriptors();
      await useMany(wire);
      for (let index = 0; index < 10; index++) await turn();
      // What Node itself opens for its thread pool or timers may stay.
      assert.ok(openDescriptors() <= before + 4, `${openDescriptors()} descriptors, ${before} before`);
    });
  }
});

async function useMany(wire: (typeof wires)[number]): Promise<void> {
  await using pair = openSoftPair(wire);
  const sides = [pair.left, pair.right].map((device) => {
    const pd = device.createPd();
    const cq = device.createCq({ entries: 8 * QPS });
    const mr = pd.allocate({ sizeBytes: 4 * QPS * SLOT, access: allAccess });
    const options = { sendCq: cq, sendRequests: 4, receiveRequests: 2, maxSge: 1 };
    return { cq, mr, qps: Array.from({ length: QPS }, () => pd.createQp(options)) };
  });
  const [left, right] = sides;
  assert.ok(left && right);
  const options = { attributes: { timeout: 20 } };
  for (const [index, qp] of left.qps.entries()) connectPair(qp, at(right.qps, index), options);
  for (let index = 0; index < QPS; index++) {
    left.mr.bytes.fill((index % 250) + 1, index * SLOT, (index + 1) * SLOT);
  }
  for (const [index, qp] of right.qps.entries()) postReceive(qp, right.mr, index);
  for (const [index, qp] of left.qps.entries()) postBoth(qp, index, left.mr, right.mr);
  const sent = await drain(left.cq, 2 * QPS, 60_000);
  assert.deepEqual(new Set(sent.map(({ status }) => status)), new Set(['SUCCESS']));
  const received = await drain(right.cq, QPS, 60_000);
  assert.equal(new Set(received.map(({ qpNumber }: Completion) => qpNumber)).size, QPS);
  assert.equal(Buffer.compare(right.mr.bytes.subarray(0, QPS * SLOT), left.mr.bytes.subarray(0, QPS * SLOT)), 0);
  const second = right.mr.bytes.subarray(QPS * SLOT, 2 * QPS * SLOT);
  assert.equal(Buffer.compare(second, left.mr.bytes.subarray(0, QPS * SLOT)), 0);
  // One that dies takes no other with it.
  at(left.qps, 0).modify('ERR');
  for (let index = 1; index < 10; index++) postBoth(at(left.qps, index), index, left.mr, right.mr, 'write');
  const later = await drain(left.cq, 9);
  assert.deepEqual(new Set(later.map(({ status }) => status)), new Set(['SUCCESS']));
}

const receives = new ReceiveBatch({ capacity: 1, maxSge: 1 });
const sends = new SendBatch({ capacity: 2, maxSge: 1 });

function postReceive(qp: Qp, mr: Mr, index: number): void {
  receives.clear();
  receives.receive(index).sge(mr.lkey, mr.address + index * SLOT, SLOT);
  assert.equal(qp.postReceive(receives), 1);
}

function postBoth(qp: Qp, index: number, from: Mr, to: Mr, what: 'both' | 'write' = 'both'): void {
  sends.clear();
  const source = from.address + index * SLOT;
  if (what === 'both') sends.send(index).sge(from.lkey, source, SLOT);
  sends.write(index, to.address + (QPS + index) * SLOT, to.rkey).sge(from.lkey, source, SLOT);
  assert.equal(qp.postSend(sends), sends.count);
}

function at(qps: readonly Qp[], index: number): Qp {
  const qp = qps[index];
  assert.ok(qp);
  return qp;
}
