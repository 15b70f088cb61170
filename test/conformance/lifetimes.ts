// Lifetimes: children close before their parents, closing twice is harmless, and using a closed
// object throws.

import assert from 'node:assert/strict';
import { describe } from 'node:test';
import { CompletionBatch, ReceiveBatch, SendBatch } from '../../src/verbs/index.ts';
import { type ConformanceTarget, conforms } from './target.ts';
import { turn } from './wait.ts';

const closed = { code: 'MILLRACE_ERR_CLOSED' };
const usage = { code: 'MILLRACE_ERR_USAGE' };

export function lifetimes(target: ConformanceTarget): void {
  describe(`${target.name}: lifetimes and limits`, () => {
    conforms(target, 'sizes outside the limits of the device are refused', {}, ({ left }) => {
      const { device, pd } = left;
      const limits = device.attributes;
      for (const entries of [0, -1, 1.5, limits.maxCqEntries + 1])
        assert.throws(() => device.createCq({ entries }), usage);
      const wrong = [
        { sendRequests: 0 },
        { sendRequests: limits.maxQpRequests + 1 },
        { receiveRequests: limits.maxQpRequests + 1 },
        { maxSge: limits.maxSge + 1 },
        { maxInlineBytes: limits.maxInlineBytes + 1 },
      ];
      for (const options of wrong) assert.throws(() => left.createQp(options), usage, JSON.stringify(options));
      assert.throws(() => pd.createSrq({ requests: 0 }), usage);
      assert.throws(() => pd.createSrq({ requests: limits.maxSrqRequests + 1 }), usage);
    });

    conforms(target, 'the device tells what it is', {}, ({ left, right }) => {
      const { attributes, info } = left.device;
      assert.ok(info.name.length > 0 && info.provider.length > 0 && info.transport.length > 0);
      for (const limit of [
        attributes.maxQps,
        attributes.maxCqs,
        attributes.maxMrs,
        attributes.maxSge,
        attributes.maxRdAtomic,
      ]) {
        assert.ok(limit > 0);
      }
      for (const { device } of [left, right]) {
        const port = device.port();
        assert.equal(port.state, 'ACTIVE');
        assert.ok(port.gids.length > 0);
        assert.ok(port.activeMtu <= port.maxMtu);
      }
      assert.throws(() => left.device.port(200), usage);
    });

    conforms(target, 'what is closed throws MILLRACE_ERR_CLOSED, and closing again is harmless', {}, (rig) => {
      const { device, pd, qp, mr, sendCq } = rig.left;
      const channel = device.createChannel();
      using sends = new SendBatch();
      using receives = new ReceiveBatch();
      using completions = new CompletionBatch();
      const twice = (object: { close(): void }): void => {
        object.close();
        object.close();
      };
      const srq = pd.createSrq();
      twice(srq);
      assert.throws(() => srq.post(receives), closed);
      assert.throws(() => srq.setLimit(1), closed);
      assert.throws(() => rig.left.createQp({ srq }), closed);
      twice(mr);
      assert.throws(() => mr.grant(qp), closed);
      twice(qp);
      assert.throws(() => qp.postSend(sends), closed);
      assert.throws(() => qp.postReceive(receives), closed);
      assert.throws(() => qp.modify('ERR'), closed);
      twice(sendCq);
      assert.throws(() => sendCq.poll(completions), closed);
      assert.throws(() => sendCq.arm(), closed);
      assert.throws(() => pd.createQp({ sendCq }), closed);
      twice(channel);
      assert.throws(() => channel.take(), closed);
      assert.throws(() => device.createCq({ channel }), closed);
      twice(pd);
      assert.throws(() => pd.allocate({ sizeBytes: 4096 }), closed);
      assert.throws(() => pd.createSrq(), closed);
      twice(device);
      assert.throws(() => device.createPd(), closed);
      assert.throws(() => device.createCq(), closed);
      assert.throws(() => device.createChannel(), closed);
      assert.throws(() => device.ports, closed);
    });

    conforms(target, 'closing a parent closes its children first', {}, async ({ left }) => {
      const { device, pd, qp, mr, sendCq, receiveCq } = left;
      const channel = device.createChannel();
      const watched = device.createCq({ channel });
      const srq = pd.createSrq();
      const shared = left.createQp({ srq });
      srq.close();
      assert.deepEqual([shared.isClosed, pd.isClosed], [true, false]);
      channel.close();
      assert.equal(watched.isClosed, true);
      receiveCq.close();
      assert.deepEqual([qp.isClosed, sendCq.isClosed], [true, false]);
      device.close();
      assert.deepEqual([pd.isClosed, mr.isClosed, sendCq.isClosed], [true, true, true]);
      await turn();
    });

    conforms(target, 'everything may be closed in the middle of traffic', {}, async ({ left, right }) => {
      for (let wrId = 0; wrId < 32; wrId++) right.receive(wrId, 0, 8);
      left.post((batch) => {
        for (let wrId = 0; wrId < 32; wrId++) {
          batch.send(wrId).sge(...left.at(0, 8));
          batch.read(wrId, right.mr.address, right.mr.rkey).sge(...left.at(0, 4096));
        }
      });
      left.device.close();
      await turn();
      right.mr.close();
      await turn();
      right.device.close();
      await turn();
    });
  });
}
