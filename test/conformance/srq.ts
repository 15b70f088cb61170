// Shared receive queues: several QPs take receives from one queue.

import assert from 'node:assert/strict';
import { describe } from 'node:test';
import { ReceiveBatch } from '../../src/verbs/index.ts';
import { type ConformanceTarget, conforms } from './target.ts';
import { settle, turn, until } from './wait.ts';

export function sharedReceives(target: ConformanceTarget): void {
  describe(`${target.name}: shared receive queues`, () => {
    conforms(
      target,
      'a QP with an SRQ takes no receives of its own, nor an SRQ of another domain',
      { needs: 'srq' },
      ({ left }) => {
        const qp = left.createQp({ srq: left.pd.createSrq() });
        assert.throws(() => left.receive(1, 0, 8, qp), { code: 'MILLRACE_ERR_USAGE' });
        const foreign = left.device.createPd().createSrq();
        assert.throws(() => left.createQp({ srq: foreign }), { code: 'MILLRACE_ERR_USAGE' });
      },
    );

    conforms(target, 'several QPs receive from one SRQ in the order of its receives', { needs: 'srq' }, async (rig) => {
      const { left, right } = rig;
      const srq = right.pd.createSrq({ requests: 16 });
      const pairs = Array.from({ length: 3 }, () => ({ from: left.createQp(), to: right.createQp({ srq }) }));
      for (const { from, to } of pairs) rig.connect(from, to);
      using batch = new ReceiveBatch({ capacity: 9 });
      for (let wrId = 0; wrId < 9; wrId++) batch.receive(wrId).sge(...right.at(wrId * 8, 8));
      assert.equal(srq.post(batch), 9);
      const receivers: number[] = [];
      for (let wrId = 0; wrId < 9; wrId++) {
        const { from, to } = pairs[wrId % 3] ?? { from: left.qp, to: right.qp };
        left.bytes(0, 8).fill(wrId + 1);
        left.post((sends) => sends.send(wrId).sge(...left.at(0, 8)), from);
        await left.sent();
        const [received] = await right.received();
        assert.deepEqual([received?.wrId, received?.status, right.bytes(wrId * 8, 1)[0]], [wrId, 'SUCCESS', wrId + 1]);
        receivers.push(received?.qpNumber ?? 0);
        assert.equal(received?.qpNumber, to.number);
      }
      assert.equal(new Set(receivers).size, 3);
    });

    conforms(target, 'an SRQ that runs low says so once for each limit', { needs: 'srqLimit' }, async (rig) => {
      const { left, right } = rig;
      const srq = right.pd.createSrq({ requests: 16 });
      const [from, to] = [left.createQp(), right.createQp({ srq })];
      rig.connect(from, to);
      let events = 0;
      right.device.events.on('srqLimit', (low) => {
        assert.equal(low, srq);
        events++;
      });
      using batch = new ReceiveBatch({ capacity: 8 });
      for (let wrId = 0; wrId < 8; wrId++) batch.receive(wrId).sge(...right.at(0, 8));
      srq.post(batch);
      srq.setLimit(6);
      const send = async (times: number): Promise<void> => {
        for (let index = 0; index < times; index++) left.post((sends) => sends.send(index), from);
        await left.sent(times);
        await right.received(times);
        await turn();
      };
      await send(2);
      assert.equal(events, 0);
      await send(1);
      await until('the event', () => events > 0);
      await send(2);
      assert.equal(events, 1);
    });

    conforms(target, 'a QP that dies leaves the receives of its SRQ to the others', { needs: 'srq' }, async (rig) => {
      const { left, right } = rig;
      const srq = right.pd.createSrq({ requests: 16 });
      const pairs = Array.from({ length: 2 }, () => ({ from: left.createQp(), to: right.createQp({ srq }) }));
      for (const { from, to } of pairs) rig.connect(from, to);
      const [dead, alive] = pairs;
      assert.ok(dead && alive);
      using batch = new ReceiveBatch({ capacity: 1 });
      batch.receive(1).sge(...right.at(0, 8));
      srq.post(batch);
      dead.to.modify('ERR');
      assert.deepEqual(await settle(right.receiveCq, 20), []);
      left.post((sends) => sends.send(2), alive.from);
      assert.deepEqual(await right.receivedStatuses(), ['1:SUCCESS']);
    });

    conforms(target, 'an empty SRQ makes senders wait for its next receive', { needs: 'srq' }, async (rig) => {
      const { left, right } = rig;
      const srq = right.pd.createSrq({ requests: 16 });
      const [from, to] = [left.createQp(), right.createQp({ srq })];
      rig.connect(from, to);
      left.post((sends) => sends.send(1), from);
      assert.deepEqual(await settle(left.sendCq, 30), []);
      using batch = new ReceiveBatch({ capacity: 1 });
      batch.receive(2);
      srq.post(batch);
      assert.deepEqual(await right.receivedStatuses(), ['2:SUCCESS']);
      assert.deepEqual(await left.sentStatuses(), ['1:SUCCESS']);
    });
  });
}
