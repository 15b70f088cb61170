import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { ReceiveBatch, read64, receiveRow, SendBatch, sendFlags, sendOpcodes, sendRow, write64 } from './index.ts';

describe('a batch of work requests', () => {
  test('invalid sizes are refused', () => {
    for (const options of [{ capacity: 0 }, { capacity: 65_537 }, { capacity: 1.5 }, { maxSge: 0 }, { maxSge: 65 }]) {
      assert.throws(() => new SendBatch(options), { code: 'MILLRACE_ERR_USAGE' });
    }
  });

  test('memory before a request, too much of it, and more rows than there is room for are refused', () => {
    using batch = new SendBatch({ capacity: 1, maxSge: 2 });
    assert.throws(() => batch.sge(1, 0, 1), { code: 'MILLRACE_ERR_USAGE' });
    batch.send(1).sge(1, 0, 1).sge(1, 0, 1);
    assert.throws(() => batch.sge(1, 0, 1), /takes 2 scatter-gather entries/);
    assert.throws(() => batch.send(2), /the batch is full: it has 1 rows/);
    batch.clear();
    assert.equal(batch.count, 0);
    batch.send(3);
    assert.equal(batch.words[sendRow.sgeCount], 0);
  });

  test('64-bit fields hold every whole number up to 2^53', () => {
    const words = new Uint32Array(3);
    fc.assert(
      fc.property(fc.maxSafeNat(), (value) => {
        write64(words, 1, value);
        return read64(words, 1) === value && words[0] === 0;
      }),
    );
  });

  test('a datagram has a destination, once there is a request', () => {
    using batch = new SendBatch({ capacity: 2, maxSge: 1 });
    assert.throws(() => batch.to(1, 2, 3), { code: 'MILLRACE_ERR_USAGE' });
    batch.send(1).to(7, 8, 9).sge(1, 2, 3);
    batch.sendWithImm(2, 5).to(10, 0xff_ffff, 0xffff_ffff);
    const { words, rowWords } = batch;
    const destination = (row: number): number[] =>
      Array.from(words.subarray(row * rowWords + sendRow.destQpNumber, row * rowWords + sendRow.sge));
    assert.deepEqual(
      [destination(0), destination(1)],
      [
        [8, 9, 7],
        [0xff_ffff, 0xffff_ffff, 10],
      ],
    );
    assert.equal(words[sendRow.sgeCount], 1);
  });

  test('rows are where the layout says', () => {
    using batch = new SendBatch({ capacity: 4, maxSge: 1 });
    batch.writeWithImm(2 ** 40, 2 ** 50 + 8, 0xffff_ffff, 7, sendFlags.fence).sge(9, 2 ** 33, 64);
    batch.compareSwap(1, 16, 2, 0xa, 0xb, 0xc, 0xd);
    const { words, rowWords } = batch;
    assert.equal(rowWords, sendRow.sge + 4);
    assert.deepEqual([words[sendRow.opcode], words[sendRow.flags]], [sendOpcodes.writeWithImm, sendFlags.fence]);
    assert.deepEqual([words[sendRow.imm], words[sendRow.rkey], words[sendRow.sgeCount]], [7, 0xffff_ffff, 1]);
    assert.equal(read64(words, sendRow.wrId), 2 ** 40);
    assert.equal(read64(words, sendRow.remoteAddress), 2 ** 50 + 8);
    assert.deepEqual(Array.from(words.subarray(sendRow.sge, sendRow.sge + 4)), [0, 2, 64, 9]);
    const second = Array.from(words.subarray(rowWords + sendRow.compareAdd, rowWords + sendRow.swap + 2));
    assert.deepEqual(second, [0xa, 0xb, 0xc, 0xd]);
    using receives = new ReceiveBatch({ maxSge: 2 });
    receives.receive(5).sge(1, 2, 3).sge(4, 5, 6);
    assert.equal(read64(receives.words, receiveRow.wrId), 5);
    const sges = Array.from(receives.words.subarray(receiveRow.sge, receiveRow.sge + 8));
    assert.deepEqual(sges, [2, 0, 3, 1, 5, 0, 6, 4]);
  });
});
