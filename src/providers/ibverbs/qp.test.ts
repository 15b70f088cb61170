import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { pathWords, stepWords } from '../../native/index.ts';
import { encodePath, encodeStep } from './qp.ts';

/** IBV_QP_… of <infiniband/verbs.h>, by bit. */
const bits = (...numbers: number[]): number => numbers.reduce((mask, bit) => mask | (1 << bit), 0);

describe('a step of the QP state machine for libibverbs', () => {
  test('has a mask of what was given, and nothing else', () => {
    const reset = encodeStep('RESET', {});
    assert.deepEqual(Array.from(reset), [bits(0), ...Array(stepWords.count - 1).fill(0)]);
    const init = encodeStep('INIT', { portNumber: 1, access: 15, pkeyIndex: 0 });
    assert.equal(init[stepWords.mask], bits(0, 3, 4, 5));
    assert.deepEqual([init[stepWords.state], init[stepWords.portNumber], init[stepWords.access]], [1, 1, 15]);
  });

  test('names all that RTR and RTS want', () => {
    const rtr = encodeStep('RTR', {
      path: { gid: 'fe80::1' },
      pathMtu: 4096,
      destQpNumber: 0xff_ffff,
      rqPsn: 0xab_cdef,
      maxDestRdAtomic: 16,
      minRnrTimer: 12,
    });
    // STATE, AV, PATH_MTU, RQ_PSN, MIN_RNR_TIMER, MAX_DEST_RD_ATOMIC, DEST_QPN
    assert.equal(rtr[stepWords.mask], bits(0, 7, 8, 12, 15, 17, 20));
    assert.deepEqual([rtr[stepWords.state], rtr[stepWords.pathMtu], rtr[stepWords.destQpNumber]], [2, 5, 0xff_ffff]);
    const rts = encodeStep('RTS', { sqPsn: 1, timeout: 14, retryCount: 7, rnrRetry: 6, maxRdAtomic: 4 });
    // STATE, TIMEOUT, RETRY_CNT, RNR_RETRY, MAX_QP_RD_ATOMIC, SQ_PSN
    assert.equal(rts[stepWords.mask], bits(0, 9, 10, 11, 13, 16));
    assert.deepEqual([rts[stepWords.timeout], rts[stepWords.retryCount], rts[stepWords.rnrRetry]], [14, 7, 6]);
  });

  test('has the path to the peer beside it', () => {
    const source = { gidIndex: 5, activeMtu: 4096, isGlobal: true } as const;
    const bytes = encodePath(2, { gid: '::ffff:10.0.0.7', lid: 9 }, source);
    const words = new Uint32Array(bytes.buffer);
    assert.deepEqual(Array.from(words.subarray(0, pathWords.gid)), [2, 9, 1, 5, 64]);
    assert.equal(Buffer.from(bytes).toString('hex', pathWords.gid * 4), '00000000000000000000ffff0a000007');
    const near = encodePath(1, { gid: 'fe80::1', hopLimit: 1 }, { ...source, isGlobal: false });
    assert.deepEqual(Array.from(new Uint32Array(near.buffer).subarray(0, pathWords.gid)), [1, 0, 0, 5, 1]);
  });
});
