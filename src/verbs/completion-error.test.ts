import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { CompletionBatch, openSoftDevice, SendBatch } from '../providers/index.ts';
import { type CompletionStatus, completionStatuses, likelyCauses } from './completion.ts';
import { CompletionError } from './completion-error.ts';

describe('a completion that failed', () => {
  test('names the request, the QP, the peer and the likely cause', () => {
    using device = openSoftDevice({ wire: 'tcp', faults: { seed: 1, qpDeathAt: 1 } });
    const cq = device.createCq();
    const qp = device.createPd().createQp({ sendCq: cq });
    qp.init();
    const path = { gid: '::ffff:127.0.0.1', lid: 99 };
    qp.modify('RTR', { path, pathMtu: 1024, destQpNumber: 5, rqPsn: 0, maxDestRdAtomic: 1, minRnrTimer: 1 });
    qp.modify('RTS', { sqPsn: 0, timeout: 10, retryCount: 1, rnrRetry: 1, maxRdAtomic: 1 });
    using batch = new SendBatch();
    using completions = new CompletionBatch();
    qp.postSend(batch.send(42));
    assert.equal(cq.poll(completions), 1);
    assert.throws(() => qp.throwIfFailed(completions, 0), {
      name: 'CompletionError',
      code: 'WR_FLUSH_ERR',
      status: 5,
      wrId: 42,
      qpNumber: qp.number,
      message: `request 42 on QP ${qp.number} to QP 5 at ::ffff:127.0.0.1 port 99: WR_FLUSH_ERR (${likelyCauses.WR_FLUSH_ERR})`,
    });
  });

  test('has a cause for every status', () => {
    for (const status of Object.keys(completionStatuses) as CompletionStatus[]) {
      const completion = { wrId: 1, status, opcode: 'send', byteLength: 0, qpNumber: 7 } as const;
      assert.match(
        new CompletionError(completion, { number: 7, peer: 'x' }).message,
        /^request 1 on QP 7 to x: \w+ \(.{9,}\)$/,
      );
    }
  });
});
