import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  checkMade,
  checkVerbs,
  isFull,
  lockedMemoryLimit,
  mebibytes,
  refusalError,
  registerHint,
  stepHint,
  verbsError,
} from './errors.ts';

describe('what libibverbs refuses', () => {
  test('is an errno in words, with the attempt and what to do', () => {
    assert.equal(
      verbsError(-22, 'ibv_modify_qp', 'QP 7 from INIT to RTR', 'check the GID index').message,
      'ibv_modify_qp: EINVAL (QP 7 from INIT to RTR: invalid argument; check the GID index)',
    );
    // 524 is ENOTSUPP, which only the kernel knows.
    assert.equal(verbsError(-524, 'ibv_create_srq', 'make an SRQ').code, 'ENOTSUP');
  });

  test('success passes through', () => {
    const attempt = (): string => assert.fail('nobody asked');
    assert.equal(checkVerbs(5, 'ibv_create_cq', attempt), 5);
    const made = {};
    assert.equal(checkMade(made, 'ibv_create_qp', attempt), made);
    assert.throws(() => checkMade(-12, 'ibv_create_qp', () => 'make a QP'), {
      code: 'ENOMEM',
      message: /no more of them/,
    });
    assert.throws(() => checkVerbs(-13, 'ibv_open_device', () => 'open it'), { message: /uverbs/ });
  });

  test('memory that cannot be pinned names the limit', () => {
    assert.match(registerHint(-12) ?? '', /locked-memory limit is .*raise LimitMEMLOCK|locked memory is not limited/);
    assert.match(registerHint(-14) ?? '', /reading only/);
    assert.equal(registerHint(-5), undefined);
    const limits = 'Limit  Soft Limit  Hard Limit  Units\nMax locked memory         8388608   unlimited  bytes\n';
    assert.equal(lockedMemoryLimit(limits), 8 << 20);
    assert.equal(lockedMemoryLimit(limits.replace('8388608', 'unlimited')), Number.POSITIVE_INFINITY);
    assert.equal(lockedMemoryLimit(''), undefined);
    assert.deepEqual(
      [mebibytes(65_536), mebibytes(64 << 20), mebibytes(1.5 * 2 ** 20)],
      ['64 KiB', '64 MiB', '1.5 MiB'],
    );
  });

  test('a step names the GID index and the peer', () => {
    const facts = { gidIndex: 3, peer: 'fd99::2' };
    assert.match(stepHint(-22, facts) ?? '', /GID index 3 .* for fd99::2.* MTU/);
    assert.match(stepHint(-61, facts) ?? '', /GID index 3 of this port is empty/);
    assert.match(stepHint(-110, facts) ?? '', /no way from GID index 3 to fd99::2/);
    assert.equal(stepHint(-5, facts), undefined);
  });

  test('a wrong row is a UsageError, a full queue no error, and all else an error of the device', () => {
    const refusal = { what: 'send request', row: 4, queue: 'QP 9', maxSge: 2, maxInlineBytes: 64 };
    for (const [errno, words] of [
      [-7, /more scatter-gather entries than the 2/],
      [-90, /inline data is longer than the 64 bytes/],
      [-14, /in no memory of this thread/],
      [-95, /no such operation/],
      [-89, /no address handle/],
      [-22, /malformed/],
    ] as const) {
      const error = refusalError({ errno, ...refusal });
      assert.deepEqual([error.name, 'code' in error && error.code], ['UsageError', 'MILLRACE_ERR_USAGE']);
      assert.match(error.message, /^post send request 4 of a batch to QP 9: /);
      assert.match(error.message, words);
    }
    assert.ok(isFull(-12) && !isFull(-22));
    assert.equal(refusalError({ errno: -5, ...refusal }).name, 'SystemError');
  });
});
