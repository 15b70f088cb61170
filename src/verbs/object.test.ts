// Runs in a process of its own: there must be no provider in it.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { paperDevice } from './fixtures/paper-device.ts';
import { access, CompletionBatch, openDevice, ReceiveBatch, SendBatch } from './index.ts';

describe('verbs objects', () => {
  test('without a provider there is no device, by name or as the default', () => {
    assert.throws(() => openDevice('mlx5_0'), { code: 'MILLRACE_ERR_USAGE' });
    assert.throws(() => openDevice(), { code: 'MILLRACE_ERR_UNSUPPORTED' });
  });

  test('what is beyond the device is refused with what it takes', () => {
    using device = paperDevice();
    const pd = device.createPd();
    const sendCq = device.createCq();
    assert.throws(() => device.createCq({ entries: 0 }), /a CQ of 0 entries: paper takes 1 to 65536/);
    assert.throws(() => pd.createQp({ sendCq, sendRequests: 65_537 }), /65537 send requests: the device takes 1 to/);
    assert.throws(() => pd.createQp({ sendCq, maxSge: 5 }), /5 scatter-gather entries/);
    assert.throws(() => pd.createQp({ sendCq, maxInlineBytes: 65 }), /65 inline bytes/);
    assert.throws(() => device.port(2), /paper has no port 2/);
  });

  test('invalid access flags, and ranges outside of the memory, are not registered', () => {
    using device = paperDevice();
    const pd = device.createPd();
    assert.throws(() => pd.allocate({ sizeBytes: 64, access: access.remoteWrite }), /need local write access/);
    assert.throws(() => pd.allocate({ sizeBytes: 64, access: 256 }), /access flags 256 are not known/);
    const { memory } = pd.allocate({ sizeBytes: 64 });
    for (const range of [{ offset: 65 }, { offset: -1 }, { sizeBytes: 65 }, { sizeBytes: 0 }, { offset: 0.5 }]) {
      assert.throws(() => pd.register(memory, range), { code: 'MILLRACE_ERR_USAGE' });
    }
    memory.close();
    assert.throws(() => pd.register(memory), /the memory is closed/);
  });

  test('a key is granted for a QP of the same protection domain, and for no more than the region allows', () => {
    using device = paperDevice();
    const [pd, other] = [device.createPd(), device.createPd()];
    const mr = pd.allocate({ sizeBytes: 64, access: access.localWrite | access.remoteWrite });
    const sendCq = device.createCq();
    assert.throws(() => mr.grant(other.createQp({ sendCq })), /another protection domain/);
    assert.throws(() => mr.grant(pd.createQp({ sendCq }), access.remoteRead), /the region itself allows less/);
  });

  test('posting too early is refused', () => {
    using device = paperDevice();
    const qp = device.createPd().createQp({ sendCq: device.createCq() });
    using sends = new SendBatch();
    using receives = new ReceiveBatch();
    assert.throws(() => qp.postReceive(receives), /it is in RESET/);
    qp.init();
    assert.throws(() => qp.postSend(sends), /it is in INIT, not in RTS yet/);
    assert.equal(qp.postReceive(receives), 0);
  });

  test('a parent closes its children first, and all are closed for good', () => {
    const device = paperDevice();
    const channel = device.createChannel();
    const cq = device.createCq({ channel });
    const pd = device.createPd();
    const mr = pd.allocate({ sizeBytes: 64 });
    const qp = pd.createQp({ sendCq: cq });
    using batch = new CompletionBatch();
    cq.close();
    assert.deepEqual([qp.isClosed, cq.isClosed, mr.isClosed, channel.isClosed], [true, true, false, false]);
    device.close();
    device.close();
    for (const object of [device, channel, cq, pd, mr, qp]) {
      assert.equal(object.isClosed, true);
      object.close();
    }
    assert.equal(mr.bytes.length, 0);
    const uses = [() => cq.poll(batch), () => cq.arm(), () => channel.fd, () => pd.allocate({ sizeBytes: 1 })];
    for (const use of [...uses, () => device.createPd(), () => qp.modify('ERR'), () => mr.grant(qp)]) {
      assert.throws(use, { code: 'MILLRACE_ERR_CLOSED' });
    }
  });
});
