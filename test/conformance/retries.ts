// A peer that is not ready, slow, gone or never was; and what becomes of work that is outstanding
// when a QP fails.

import assert from 'node:assert/strict';
import { describe } from 'node:test';
import { modifyToRts, PSN_OF_LEFT, PSN_OF_RIGHT } from './connect.ts';
import { type ConformanceTarget, conforms } from './target.ts';
import { settle, turn } from './wait.ts';

// 4.096 us times 2 to this: 67 ms. With less, a busy machine may not connect in time.
const quickRetry = { timeout: 15, retryCount: 1 };
// 0.5 s: the peer must have answered before it is closed, also in an emulated guest.
const slowRetry = { timeout: 17, retryCount: 1 };
const rnrOnce = { rnrRetry: 1 };
// Code 1 is 10 us.
const rnrSoon = { minRnrTimer: 1 };

export function retries(target: ConformanceTarget): void {
  describe(`${target.name}: a peer that is not ready`, () => {
    const rnr = { left: { attributes: rnrOnce }, right: { attributes: rnrSoon } };
    for (const kind of ['SEND', 'WRITE_WITH_IMM'] as const) {
      conforms(
        target,
        `${kind} without a receive is RNR_RETRY_EXC_ERR after the retries`,
        rnr,
        async ({ left, right }) => {
          left.bytes(0, 8).fill(7);
          left.post((batch) => {
            if (kind === 'SEND') batch.send(1).sge(...left.at(0, 8));
            else batch.writeWithImm(1, right.mr.address, right.mr.rkey, 5).sge(...left.at(0, 8));
            batch.write(2, right.mr.address, right.mr.rkey).sge(...left.at(0, 8));
          });
          assert.deepEqual(await left.sentStatuses(2), ['1:RNR_RETRY_EXC_ERR', '2:WR_FLUSH_ERR']);
          assert.equal(left.qp.state, 'ERR');
          assert.equal(right.qp.state, 'RTS');
          if (kind === 'SEND') assert.ok(right.bytes(0, 8).every((byte) => byte === 0));
        },
      );
    }

    conforms(
      target,
      'a receive that comes late is still in time, and nothing overtakes',
      {},
      async ({ left, right }) => {
        left.post((batch) => {
          for (let wrId = 1; wrId <= 4; wrId++) batch.send(wrId).sge(...left.at(wrId, 1));
        });
        left.bytes(0, 8).set([0, 1, 2, 3, 4]);
        assert.deepEqual(await settle(left.sendCq, 50), []);
        for (let wrId = 1; wrId <= 4; wrId++) {
          right.receive(10 + wrId, wrId, 1);
          assert.deepEqual(await right.receivedStatuses(), [`${10 + wrId}:SUCCESS`]);
          await turn();
        }
        assert.deepEqual(await left.sentStatuses(4), ['1:SUCCESS', '2:SUCCESS', '3:SUCCESS', '4:SUCCESS']);
        assert.deepEqual([...right.bytes(1, 4)], [1, 2, 3, 4]);
      },
    );

    conforms(target, 'a message of several packets waits for its receive, too', {}, async ({ left, right }) => {
      const length = left.device.port().activeMtu * 3 + 1;
      left.bytes(0, length).fill(9);
      left.post((batch) => batch.send(1).sge(...left.at(0, length)));
      assert.deepEqual(await settle(left.sendCq, 50), []);
      right.receive(2, 0, length);
      const [received] = await right.received();
      assert.deepEqual([received?.status, received?.byteLength], ['SUCCESS', length]);
      assert.ok(right.bytes(0, length).every((byte) => byte === 9));
      assert.deepEqual(await left.sentStatuses(), ['1:SUCCESS']);
    });
  });

  describe(`${target.name}: a peer that is not there`, () => {
    conforms(target, 'a peer that comes late is found', { isConnected: false }, async (rig) => {
      const { left, right } = rig;
      const peer = { device: right.device, qpNumber: right.qp.number, psn: PSN_OF_RIGHT };
      modifyToRts(left.qp, 'RTS', PSN_OF_LEFT, peer, rig.connectOptions('left'));
      left.put(0, 'early');
      left.post((batch) => batch.send(1).sge(...left.at(0, 5)));
      assert.deepEqual(await settle(left.sendCq, 50), []);
      const back = { device: left.device, qpNumber: left.qp.number, psn: PSN_OF_LEFT };
      modifyToRts(right.qp, 'RTS', PSN_OF_RIGHT, back, rig.connectOptions('right'));
      right.receive(2, 0, 8);
      assert.deepEqual(await left.sentStatuses(), ['1:SUCCESS']);
      assert.deepEqual(await right.receivedStatuses(), ['2:SUCCESS']);
      assert.equal(right.text(0, 5), 'early');
    });

    const unconnected = { isConnected: false, needs: 'retryExceeded', left: { attributes: quickRetry } } as const;
    conforms(target, 'a QP number that nobody has is RETRY_EXC_ERR', unconnected, async (rig) => {
      const { left, right } = rig;
      const nobody = { device: right.device, qpNumber: right.qp.number ^ 0x55_5555, psn: PSN_OF_RIGHT };
      modifyToRts(left.qp, 'RTS', PSN_OF_LEFT, nobody, rig.connectOptions('left'));
      left.post((batch) =>
        batch
          .write(1, right.mr.address, right.mr.rkey)
          .sge(...left.at(0, 8))
          .send(2),
      );
      assert.deepEqual(await left.sentStatuses(2), ['1:RETRY_EXC_ERR', '2:WR_FLUSH_ERR']);
      assert.equal(left.qp.state, 'ERR');
    });

    conforms(
      target,
      'a QP that was closed is RETRY_EXC_ERR',
      { left: { attributes: quickRetry }, needs: 'retryExceeded' },
      async ({ left, right }) => {
        left.post((batch) => batch.write(1, right.mr.address, right.mr.rkey).sge(...left.at(0, 8)));
        assert.deepEqual(await left.sentStatuses(), ['1:SUCCESS']);
        right.qp.close();
        left.post((batch) =>
          batch
            .write(2, right.mr.address, right.mr.rkey)
            .sge(...left.at(0, 8))
            .send(3),
        );
        const [first, second] = await left.sentStatuses(2);
        assert.equal(second, '3:WR_FLUSH_ERR');
        // A wire with connections may have detected the end before the request was posted.
        assert.ok(first === '2:RETRY_EXC_ERR' || first === '2:WR_FLUSH_ERR', first);
      },
    );

    conforms(
      target,
      'a device that was closed under outstanding work does not leave it hanging',
      { left: { attributes: slowRetry }, needs: 'retryExceeded' },
      async ({ left, right }) => {
        left.post((batch) =>
          batch
            .send(1)
            .sge(...left.at(0, 8))
            .send(2),
        );
        left.receive(3, 0, 8);
        assert.deepEqual(await settle(left.sendCq, 20), []);
        right.device.close();
        const [first, second] = await left.sentStatuses(2);
        assert.ok(first === '1:RETRY_EXC_ERR' || first === '1:WR_FLUSH_ERR', first);
        assert.equal(second, '2:WR_FLUSH_ERR');
        assert.deepEqual(await left.receivedStatuses(), ['3:WR_FLUSH_ERR']);
      },
    );
  });

  describe(`${target.name}: a peer whose QP is in ERR`, () => {
    const quickRetryLeft = { left: { attributes: quickRetry }, needs: 'retryExceeded' } as const;
    for (const how of ['ERR', 'RESET'] as const) {
      conforms(
        target,
        `a QP moved to ${how} carries out nothing more for its peer`,
        quickRetryLeft,
        async ({ left, right }) => {
          const write = (wrId: number): void =>
            left.post((batch) => batch.write(wrId, right.mr.address, right.mr.rkey).sge(...left.at(0, 8)));
          // Long enough that a device with shortcuts uses them.
          for (let times = 0; times < 10; times++) {
            write(1);
            assert.deepEqual(await left.sentStatuses(), ['1:SUCCESS']);
            await turn();
          }
          right.qp.modify(how);
          left.bytes(0, 8).fill(7);
          write(2);
          const [status] = await left.sentStatuses();
          assert.ok(status === '2:RETRY_EXC_ERR' || status === '2:WR_FLUSH_ERR', status);
          assert.ok(right.bytes(0, 8).every((byte) => byte === 0));
        },
      );
    }
  });

  describe(`${target.name}: flushing`, () => {
    conforms(target, 'everything outstanding is flushed in order', {}, async ({ left }) => {
      left.post((batch) => {
        for (let wrId = 0; wrId < 30; wrId++) batch.send(wrId, wrId % 2).sge(...left.at(0, 8));
      });
      for (let wrId = 0; wrId < 20; wrId++) left.receive(wrId, 0, 8);
      left.qp.modify('ERR');
      assert.deepEqual(
        await left.sentStatuses(30),
        Array.from({ length: 30 }, (_, wrId) => `${wrId}:WR_FLUSH_ERR`),
      );
      assert.deepEqual(
        await left.receivedStatuses(20),
        Array.from({ length: 20 }, (_, wrId) => `${wrId}:WR_FLUSH_ERR`),
      );
    });

    conforms(target, 'what is posted in ERR is flushed, and reaches nobody', {}, async ({ left, right }) => {
      right.receive(1, 0, 8);
      left.qp.modify('ERR');
      left.bytes(0, 8).fill(7);
      left.receive(2, 0, 8);
      left.post((batch) => {
        batch.send(3).sge(...left.at(0, 8));
        batch.write(4, right.mr.address, right.mr.rkey, 0).sge(...left.at(0, 8));
      });
      assert.deepEqual(await left.sentStatuses(2), ['3:WR_FLUSH_ERR', '4:WR_FLUSH_ERR']);
      assert.deepEqual(await left.receivedStatuses(), ['2:WR_FLUSH_ERR']);
      assert.ok(right.bytes(0, 8).every((byte) => byte === 0));
    });

    conforms(target, 'a QP that failed is modified to RTS again after RESET', {}, async (rig) => {
      const { left, right } = rig;
      left.post((batch) => batch.write(1, right.mr.address, 0).sge(...left.at(0, 8)));
      assert.deepEqual(await left.sentStatuses(), ['1:REM_ACCESS_ERR']);
      left.qp.modify('RESET');
      right.qp.modify('RESET');
      rig.connect();
      left.post((batch) => batch.write(2, right.mr.address, right.mr.rkey).sge(...left.at(0, 8)));
      assert.deepEqual(await left.sentStatuses(), ['2:SUCCESS']);
    });
  });
}
