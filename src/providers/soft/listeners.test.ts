// What the listeners of a device's events may do to it.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { describe, test } from 'node:test';
import { promisify } from 'node:util';
import { type Device, openSoftDevice, type Qp, SendBatch } from '../index.ts';

/** A QP that dies with its first request. */
function mortal(): { device: Device; qp: Qp } {
  const device = openSoftDevice({ wire: 'tcp', faults: { seed: 1, qpDeathAt: 1 } });
  const qp = device.createPd().createQp({ sendCq: device.createCq() });
  qp.init();
  const path = { gid: device.port().gids[0], lid: device.port().lid };
  const peer = { path, pathMtu: 1024, destQpNumber: 5, rqPsn: 0, maxDestRdAtomic: 1, minRnrTimer: 1 } as const;
  qp.modify('RTR', peer);
  qp.modify('RTS', { sqPsn: 0, timeout: 10, retryCount: 1, rnrRetry: 1, maxRdAtomic: 1 });
  return { device, qp };
}

describe('a listener of device events', () => {
  test('may close the device', () => {
    const { device, qp } = mortal();
    let reason = '';
    device.events.on('qpFatal', (event) => {
      reason = event.reason;
      device.close();
    });
    using batch = new SendBatch();
    qp.postSend(batch.send(1));
    assert.match(reason, /fault plan/);
    assert.ok(device.isClosed && qp.isClosed);
  });

  test('that throws causes an uncaught exception, and the device goes on', async () => {
    const code = `import { openSoftDevice, SendBatch, CompletionBatch } from '${new URL('../index.ts', import.meta.url).href}';
      process.on('uncaughtException', (error) => console.log('uncaught', error.message));
      const device = openSoftDevice({ wire: 'tcp', faults: { seed: 1, qpDeathAt: 1 } });
      const cq = device.createCq();
      const qp = device.createPd().createQp({ sendCq: cq });
      qp.init();
      const path = { gid: device.port().gids[0], lid: device.port().lid };
      qp.modify('RTR', { path, pathMtu: 1024, destQpNumber: 5, rqPsn: 0, maxDestRdAtomic: 1, minRnrTimer: 1 });
      qp.modify('RTS', { sqPsn: 0, timeout: 10, retryCount: 1, rnrRetry: 1, maxRdAtomic: 1 });
      device.events.on('qpFatal', () => { throw new Error('my mistake'); });
      qp.postSend(new SendBatch().send(1));
      console.log(qp.state, cq.poll(new CompletionBatch()));`;
    const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', code]);
    assert.equal(stdout, 'ERR 1\nuncaught my mistake\n');
  });
});
