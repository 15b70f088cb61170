// Queues that are full, empty or overrun.

import assert from 'node:assert/strict';
import { describe } from 'node:test';
import { type Cq, ReceiveBatch, sendFlags } from '../../src/verbs/index.ts';
import { type ConformanceTarget, conforms } from './target.ts';
import { reap, settle, until } from './wait.ts';

export function queues(target: ConformanceTarget): void {
  describe(`${target.name}: queues`, () => {
    conforms(
      target,
      'a full send queue says how many requests it took',
      { left: { sendRequests: 8 } },
      async ({ left, right }) => {
        // The peer has no receives, so requests stay in the queue.
        const fill = 256;
        const taken = left.tryPost((batch) => {
          for (let wrId = 0; wrId < fill; wrId++) batch.send(wrId).sge(...left.at(0, 1));
        });
        assert.ok(taken >= 8 && taken < fill, `took ${taken}`);
        if (target.lacks?.exactQueues === undefined) assert.equal(taken, 8);
        assert.equal(
          left.tryPost((batch) => batch.send(999)),
          0,
        );
        for (let wrId = 0; wrId < taken; wrId++) right.receive(wrId % 128, 0, 8);
        const order = (await left.sent(taken)).map(({ wrId }) => wrId);
        assert.deepEqual(
          order,
          Array.from({ length: taken }, (_, wrId) => wrId),
        );
        left.post((batch) => batch.write(1000, right.mr.address, right.mr.rkey).sge(...left.at(0, 1)));
        assert.deepEqual(await left.sentStatuses(), ['1000:SUCCESS']);
      },
    );

    conforms(
      target,
      'a full receive queue says how many requests it took',
      { left: { receiveRequests: 4 }, needs: 'exactQueues' },
      ({ left }) => {
        using batch = new ReceiveBatch({ capacity: 10 });
        for (let wrId = 0; wrId < 10; wrId++) batch.receive(wrId).sge(...left.at(0, 8));
        assert.equal(left.qp.postReceive(batch), 4);
        assert.equal(left.qp.postReceive(batch), 0);
      },
    );

    conforms(
      target,
      'one signalled request in n frees the queue of all n',
      { left: { sendRequests: 16 } },
      async ({ left, right }) => {
        for (let round = 0; round < 50; round++) {
          left.post((batch) => {
            for (let index = 0; index < 16; index++) {
              const flag = index === 15 ? sendFlags.signaled : 0;
              batch.write(round, right.mr.address + index * 8, right.mr.rkey, flag).sge(...left.at(index * 8, 8));
            }
          });
          assert.deepEqual(await left.sentStatuses(), [`${round}:SUCCESS`]);
        }
        assert.deepEqual(await settle(left.sendCq, 10), []);
      },
    );

    conforms(
      target,
      'a burst of a thousand requests arrives whole, while nobody polls there',
      { left: { sendRequests: 1024 }, right: { receiveRequests: 1024 } },
      async ({ left, right }) => {
        for (let wrId = 0; wrId < 1000; wrId++) right.receive(wrId, wrId * 8, 8);
        for (let start = 0; start < 1000; start += 250) {
          left.post((batch) => {
            for (let wrId = start; wrId < start + 250; wrId++)
              batch.send(wrId, wrId === 999 ? 1 : 0).sge(...left.at(0, 8));
          });
        }
        assert.deepEqual(await left.sentStatuses(), ['999:SUCCESS']);
        const received = await right.received(1000);
        assert.ok(received.every(({ wrId, status }, index) => wrId === index && status === 'SUCCESS'));
      },
    );

    conforms(
      target,
      'a device that was polled and is polled no more goes on by itself',
      {},
      async ({ left, right }) => {
        for (let round = 0; round < 10; round++) {
          right.receive(1, 0, 8);
          right.receive(2, 0, 8);
          left.post((batch) => batch.send(1).sge(...left.at(0, 8)));
          for (let polls = 0; polls < 200; polls++) reap(right.sendCq);
          assert.deepEqual(await left.sentStatuses(), ['1:SUCCESS']);
          for (let polls = 0; polls < 200; polls++) reap(right.sendCq);
          left.post((batch) => batch.send(2).sge(...left.at(0, 8)));
          assert.deepEqual(await left.sentStatuses(), ['2:SUCCESS']);
        }
        await right.received(20);
      },
    );

    conforms(target, 'a poll returns at most what its batch holds, oldest first', {}, async ({ left, right }) => {
      left.post((batch) => {
        for (let wrId = 0; wrId < 10; wrId++) batch.write(wrId, right.mr.address, right.mr.rkey).sge(...left.at(0, 1));
      });
      const order: number[] = [];
      await until('ten completions', () => {
        const some = reap(left.sendCq, 3);
        assert.ok(some.length <= 3);
        order.push(...some.map(({ wrId }) => wrId));
        return order.length === 10;
      });
      assert.deepEqual(order, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    });

    conforms(target, 'ids and immediates of any size come back as they were given', {}, async ({ left, right }) => {
      const ids = [0, 1, 2 ** 32 - 1, 2 ** 32, 2 ** 53 - 1];
      for (const id of ids) right.receive(id, 0, 8);
      left.post((batch) => {
        for (const id of ids) batch.sendWithImm(id, id % 2 ** 32);
      });
      assert.deepEqual(
        (await left.sent(5)).map(({ wrId }) => wrId),
        ids,
      );
      const received = await right.received(5);
      assert.deepEqual(
        received.map(({ wrId, imm }) => [wrId, imm]),
        ids.map((id) => [id, id % 2 ** 32]),
      );
    });

    conforms(
      target,
      'a CQ that overflows says so and takes its QPs with it',
      { left: { cqEntries: 4 }, needs: 'cqOverrun' },
      async ({ left, right }) => {
        const overrun: Cq[] = [];
        left.device.events.on('cqOverrun', (cq) => overrun.push(cq));
        left.post((batch) => {
          for (let wrId = 0; wrId < 100; wrId++)
            batch.write(wrId, right.mr.address, right.mr.rkey).sge(...left.at(0, 1));
        });
        await until('the event', () => overrun.length > 0);
        assert.equal(overrun[0], left.sendCq);
        await until('the QP to die', () => left.qp.state === 'ERR');
      },
    );

    conforms(
      target,
      'a CQ of receives that overflows takes its QPs with it, and the sender learns of it',
      { right: { cqEntries: 4 }, left: { attributes: { timeout: 14, retryCount: 1 } }, needs: 'cqOverrun' },
      async ({ left, right }) => {
        for (let wrId = 0; wrId < 100; wrId++) right.receive(wrId, 0, 8);
        left.post((batch) => {
          for (let wrId = 0; wrId < 100; wrId++) batch.send(wrId).sge(...left.at(0, 1));
        });
        await until('the QP to die', () => right.qp.state === 'ERR');
        const statuses = (await left.sent(100)).map(({ status }) => status).join(' ');
        assert.match(statuses, /^(SUCCESS )*[A-Z_]+_ERR( WR_FLUSH_ERR)*$/);
      },
    );

    conforms(target, 'two QPs share a CQ, and completions name theirs', {}, async (rig) => {
      const { left, right } = rig;
      const [otherLeft, otherRight] = [left.createQp(), right.createQp()];
      rig.connect(otherLeft, otherRight);
      for (const qp of [left.qp, otherLeft]) {
        left.post((batch) => batch.write(qp.number, right.mr.address, right.mr.rkey).sge(...left.at(0, 1)), qp);
      }
      const completions = await left.sent(2);
      assert.deepEqual(
        completions.map(({ wrId, qpNumber }) => wrId === qpNumber),
        [true, true],
      );
      assert.notEqual(completions[0]?.qpNumber, completions[1]?.qpNumber);
    });
  });
}
