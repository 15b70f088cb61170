import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type PaperCq, paperDevice } from './fixtures/paper-device.ts';

describe('a CQ read with for await', () => {
  test('without a channel it is refused at once', () => {
    using device = paperDevice();
    const cq = device.createCq();
    assert.throws(() => cq[Symbol.asyncIterator](), { code: 'MILLRACE_ERR_USAGE', message: /the CQ has no channel/ });
  });

  test('a closed one is refused at once', () => {
    using device = paperDevice();
    const cq = device.createCq({ channel: device.createChannel() });
    cq.close();
    assert.throws(() => cq[Symbol.asyncIterator](), { code: 'MILLRACE_ERR_CLOSED' });
  });

  test('a channel waits only for its own CQs', () => {
    using device = paperDevice();
    const cq = device.createCq({ channel: device.createChannel() });
    assert.throws(() => device.createChannel().changed(cq), { code: 'MILLRACE_ERR_USAGE' });
  });

  test('what is there, what comes just before the arming and what comes later are all given, in order', async () => {
    using device = paperDevice();
    const cq = device.createCq({ channel: device.createChannel() });
    const paper = cq.provided as PaperCq;
    paper.push(1, 9, { byteLength: 5, imm: 6 });
    paper.onArm = () => {
      paper.onArm = () => {};
      paper.push(2, 9, { status: 'WR_FLUSH_ERR' });
    };
    const seen: number[] = [];
    for await (const completion of cq) {
      seen.push(completion.wrId);
      if (seen.length === 1) assert.deepEqual(completion, toCompletion(1, { byteLength: 5, imm: 6 }));
      if (seen.length === 2) setImmediate(() => paper.push(3, 9, {}));
      if (seen.length === 3) break;
    }
    assert.deepEqual(seen, [1, 2, 3]);
  });

  test('closing the CQ ends the loop of a reader that waits', async () => {
    using device = paperDevice();
    const cq = device.createCq({ channel: device.createChannel() });
    const next = cq[Symbol.asyncIterator]().next();
    setImmediate(() => cq.close());
    assert.deepEqual(await next, { value: undefined, done: true });
  });

  test('an event that another reader takes from the channel still wakes the waiter', async () => {
    using device = paperDevice();
    const channel = device.createChannel();
    const cq = device.createCq({ channel });
    const changed = channel.changed(cq);
    (cq.provided as PaperCq).push(1, 9, {});
    assert.deepEqual(channel.take(), [cq]);
    await changed;
  });
});

function toCompletion(wrId: number, rest: object): object {
  return { wrId, status: 'SUCCESS', opcode: 'send', qpNumber: 9, byteLength: 0, ...rest };
}
