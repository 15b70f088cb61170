import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import fc from 'fast-check';
import { Socket } from '../../../native/index.ts';
import { openSoftDevice } from '../../../providers/index.ts';
import { StreamFailure } from '../stream-failure.ts';
import { BLOCK_BYTES, type Join, joinRdma, moveStream, type Run } from './fixtures/moved-stream.ts';
import { countOf, notificationOf } from './qp-pair.ts';
import { TcpReceiver, TcpSender } from './tcp-mover.ts';

const runtimeDir = mkdtempSync(join(tmpdir(), 'vortex-movers-'));
after(() => rmSync(runtimeDir, { recursive: true, force: true }));

const joinTcp: Join = async (from, to) => {
  const [left, right] = Socket.pair();
  return [new TcpSender(from, left), new TcpReceiver(to, right)];
};

const open = {
  shm: () => openSoftDevice({ wire: 'shm', runtimeDir }),
  tcp: () => openSoftDevice({ wire: 'tcp', runtimeDir }),
};

const joins: Readonly<Record<string, Join>> = {
  'plain TCP': joinTcp,
  'shm, pool': joinRdma(open.shm, 'pool'),
  'shm, register': joinRdma(open.shm, 'register'),
  'shm, copy': joinRdma(open.shm, 'copy'),
  'RDMA over TCP, pool': joinRdma(open.tcp, 'pool'),
  'RDMA over TCP, register': joinRdma(open.tcp, 'register'),
  'RDMA over TCP, copy': joinRdma(open.tcp, 'copy'),
};

const anyRun: fc.Arbitrary<Run> = fc.record({
  sizeBytes: fc.oneof(
    fc.constantFrom(0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 20 * BLOCK_BYTES, 20 * BLOCK_BYTES + 1),
    fc.integer({ min: 0, max: 24 * BLOCK_BYTES }),
  ),
  fromBlocks: fc.integer({ min: 2, max: 9 }),
  toBlocks: fc.integer({ min: 2, max: 9 }),
  isSizeKnown: fc.boolean(),
  paces: fc
    .array(fc.integer({ min: 0, max: 3 }), { minLength: 1, maxLength: 4 })
    .filter((all) => all.some((n) => n > 0)),
});

for (const [name, join] of Object.entries(joins)) {
  describe(name, () => {
    test('what was written is read, in order, whatever the sizes, the pools and the speeds', async () => {
      await fc.assert(
        fc.asyncProperty(anyRun, (run) => moveStream(join, run)),
        { numRuns: 30 },
      );
    });
  });
}

describe('notifications', () => {
  test('a count that cannot be is refused', () => {
    assert.throws(() => countOf(9, 5, 8), StreamFailure);
    assert.throws(() => countOf(4, 5, 8), StreamFailure);
  });

  test('counts go on past 2^31', () => {
    const known = 2 ** 31 - 2;
    assert.equal(countOf(notificationOf(known + 5, false), known, known + 8), known + 5);
  });
});
