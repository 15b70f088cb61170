// Completion channels: when a CQ asks to be woken, and by what.

import assert from 'node:assert/strict';
import { describe } from 'node:test';
import { Poller, pollEvents } from '../../src/native/index.ts';
import { type Cq, sendFlags } from '../../src/verbs/index.ts';
import { type ConformanceTarget, conforms } from './target.ts';
import { drain, reap, until } from './wait.ts';

export function channels(target: ConformanceTarget): void {
  describe(`${target.name}: completion channels`, () => {
    conforms(target, 'an armed CQ makes its channel readable, once', { isConnected: false }, async (rig) => {
      const { left, right } = rig;
      const channel = right.device.createChannel();
      const cq = right.device.createCq({ entries: 64, channel });
      const qp = right.pd.createQp({ sendCq: right.sendCq, receiveCq: cq });
      rig.connect(left.qp, qp);
      for (let wrId = 1; wrId <= 3; wrId++) right.receive(wrId, 0, 8, qp);
      const send = async (): Promise<void> => {
        left.post((batch) => batch.send(0));
        await left.sent();
      };
      await send();
      assert.deepEqual(channel.take(), []);
      await drain(cq, 1);
      cq.arm();
      await send();
      let taken: readonly Cq[] = [];
      await until('an event', () => {
        taken = channel.take();
        return taken.length > 0;
      });
      assert.deepEqual(
        taken.map((found) => found === cq),
        [true],
      );
      await drain(cq, 1);
      await send();
      await drain(cq, 1);
      assert.deepEqual(channel.take(), []);
    });

    conforms(
      target,
      'a CQ armed for solicited messages sleeps through the others',
      { isConnected: false, needs: 'solicited' },
      async (rig) => {
        const { left, right } = rig;
        const channel = right.device.createChannel();
        const cq = right.device.createCq({ entries: 64, channel });
        const qp = right.pd.createQp({ sendCq: right.sendCq, receiveCq: cq });
        rig.connect(left.qp, qp);
        for (let wrId = 1; wrId <= 4; wrId++) right.receive(wrId, 0, 8, qp);
        cq.arm(true);
        left.post((batch) => batch.send(1));
        await left.sent();
        await drain(cq, 1);
        assert.deepEqual(channel.take(), []);
        left.post((batch) => batch.send(2, sendFlags.signaled | sendFlags.solicited));
        await until('an event', () => channel.take().length > 0);
        await drain(cq, 1);
      },
    );

    conforms(
      target,
      'a CQ armed for solicited messages is woken by an error, too',
      { isConnected: false, needs: 'solicitedErrors' },
      async (rig) => {
        const { left, right } = rig;
        const channel = right.device.createChannel();
        const cq = right.device.createCq({ entries: 64, channel });
        const qp = right.pd.createQp({ sendCq: right.sendCq, receiveCq: cq });
        rig.connect(left.qp, qp);
        right.receive(1, 0, 8, qp);
        cq.arm(true);
        qp.modify('ERR');
        await until('an event', () => channel.take().length > 0);
      },
    );

    conforms(target, 'a thread can block on the descriptor of a channel', { isConnected: false }, async (rig) => {
      const { left, right } = rig;
      const channel = right.device.createChannel();
      const cq = right.device.createCq({ entries: 64, channel });
      const qp = right.pd.createQp({ sendCq: right.sendCq, receiveCq: cq });
      rig.connect(left.qp, qp);
      left.post((batch) => batch.write(1, right.mr.address, right.mr.rkey).sge(...left.at(0, 8)));
      assert.deepEqual(await left.sentStatuses(), ['1:SUCCESS']);
      using poller = Poller.create();
      poller.add(channel.fd, pollEvents.in, 1);
      for (let round = 0; round < 20; round++) {
        right.receive(round, 0, 8, qp);
        cq.arm();
        left.post((batch) => batch.send(round));
        // The event loop stands still meanwhile.
        let isWoken = false;
        for (let waits = 0; waits < 100 && !isWoken; waits++) {
          assert.notEqual(poller.wait(5e9), 0, 'nothing in five seconds');
          isWoken = channel.take().length > 0;
        }
        assert.ok(isWoken);
        assert.deepEqual(
          reap(cq).map(({ wrId }) => wrId),
          [round],
        );
        await left.sent();
      }
    });

    conforms(
      target,
      'completions can be read with for await, and closing the CQ ends the loop',
      { isConnected: false },
      async (rig) => {
        const { left, right } = rig;
        const channel = right.device.createChannel();
        const cq = right.device.createCq({ entries: 64, channel });
        const qp = right.pd.createQp({ sendCq: right.sendCq, receiveCq: cq });
        rig.connect(left.qp, qp);
        for (let wrId = 1; wrId <= 5; wrId++) right.receive(wrId, 0, 8, qp);
        const seen: number[] = [];
        const reader = (async () => {
          for await (const { wrId } of cq) {
            seen.push(wrId);
            if (wrId < 5) left.post((batch) => batch.send(wrId));
          }
        })();
        left.post((batch) => batch.send(0));
        await until('five completions', () => seen.length === 5);
        assert.deepEqual(seen, [1, 2, 3, 4, 5]);
        cq.close();
        await reader;
      },
    );
  });
}
