import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { SharedMemory } from '../../native/index.ts';
import { BlockQueue, ledgerWord } from './block-queue.ts';
import { errorOfFailure, failureCode } from './failure.ts';
import { checkOptions, createStreamQueue } from './options.ts';

const BLOCK = 64 * 1024;

describe('the queue of blocks', () => {
  test('invalid sizes are refused', () => {
    for (const blockBytes of [0, 4096, 3 * BLOCK, 128 * 1024 * 1024, Number.NaN]) {
      assert.throws(() => BlockQueue.create({ blockBytes, poolBlocks: 4 }), { code: 'MILLRACE_ERR_USAGE' });
    }
    for (const poolBlocks of [0, 1, 1.5, 65_537]) {
      assert.throws(() => BlockQueue.create({ blockBytes: BLOCK, poolBlocks }), { code: 'MILLRACE_ERR_USAGE' });
    }
    for (const sizeBytes of [-1, 0.5, 2 ** 50]) {
      assert.throws(() => BlockQueue.create({ blockBytes: BLOCK, poolBlocks: 2, sizeBytes }), {
        code: 'MILLRACE_ERR_USAGE',
      });
    }
    assert.throws(() => checkOptions({ poolBlocks: 3, revisitBlocks: 2 }), { code: 'MILLRACE_ERR_USAGE' });
    assert.throws(() => checkOptions({ readAheadBlocks: -1 }), { code: 'MILLRACE_ERR_USAGE' });
    assert.throws(() => createStreamQueue(1, { blockBytes: BLOCK, hugePages: 'always' }), {
      code: 'MILLRACE_ERR_USAGE',
    });
  });

  test('memory without a ledger, or with an invalid geometry, is refused', () => {
    using queue = BlockQueue.create({ blockBytes: BLOCK, poolBlocks: 2 });
    using other = SharedMemory.create({ sizeBytes: 4096 });
    assert.throws(() => BlockQueue.open({ ...queue.parts, ledger: other.fd }), { code: 'MILLRACE_ERR_USAGE' });
    assert.throws(() => BlockQueue.open({ ...queue.parts, pool: other.fd }), { code: 'MILLRACE_ERR_USAGE' });
    queue.ledger.words[ledgerWord.blockShift] = 63;
    assert.throws(() => BlockQueue.open(queue.parts), { code: 'MILLRACE_ERR_USAGE' });
  });

  test('a counter that runs backwards or past the pool fails the stream', () => {
    for (const committed of [1, 7, -1]) {
      using queue = BlockQueue.create({ blockBytes: BLOCK, poolBlocks: 4 });
      queue.ledger.words[ledgerWord.committed] = committed;
      assert.equal(queue.committedSince(2, 2), 2);
      assert.equal(queue.failure, failureCode.protocol);
    }
    using queue = BlockQueue.create({ blockBytes: BLOCK, poolBlocks: 4 });
    queue.ledger.words[ledgerWord.released] = 3;
    assert.equal(queue.releasedSince(0, 3), 3);
    assert.equal(queue.failure, 0);
    assert.equal(queue.releasedSince(0, 2), 0);
    assert.equal(queue.failure, failureCode.protocol);
  });

  test('the first failure stays, and both doorbells are signalled', () => {
    using queue = BlockQueue.create({ blockBytes: BLOCK, poolBlocks: 2 });
    queue.fail(failureCode.cut);
    queue.fail(failureCode.behind);
    assert.equal(queue.failure, failureCode.cut);
    assert.ok(queue.readable.take() > 0 && queue.writable.take() > 0);
  });

  test('every failure code has its error; an unknown code is a protocol error', () => {
    const codes = Object.values(failureCode).filter((code) => code < failureCode.system);
    assert.equal(new Set(codes.map((code) => errorOfFailure(code, 'producer').code)).size, codes.length);
    assert.equal(errorOfFailure(failureCode.producerClosed, 'producer').code, 'MILLRACE_ERR_VORTEX_ABORTED');
    assert.equal(errorOfFailure(failureCode.producerClosed, 'consumer').code, 'MILLRACE_ERR_VORTEX_CLOSED_BY_PEER');
    assert.match(errorOfFailure(failureCode.system + 12, 'consumer').message, /ENOMEM/);
    for (const code of [-1, 77, 1000, 99_999]) {
      assert.equal(errorOfFailure(code, 'consumer').code, 'MILLRACE_ERR_VORTEX_PROTOCOL');
    }
  });
});
