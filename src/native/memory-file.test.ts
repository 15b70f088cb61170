import assert from 'node:assert/strict';
import { fstatSync, ftruncateSync } from 'node:fs';
import { describe, test } from 'node:test';
import { MemoryFile, SharedMemory } from './index.ts';

const PAGE = 4096;

describe('memory that is made for others', () => {
  test('a size that is no size is refused, and so is a write past the end', () => {
    for (const size of [0, -1, 1.5, Number.NaN]) {
      assert.throws(() => MemoryFile.create(size, 'x'), { code: 'MILLRACE_ERR_USAGE' });
    }
    using file = MemoryFile.create(PAGE, 'x');
    file.seal('size');
    assert.throws(() => file.write(PAGE, new Uint8Array(1)));
    assert.throws(() => file.write(PAGE - 1, new Uint8Array(2)));
  });

  test('who maps it sees what is written and what is discarded, and its size stays', () => {
    using file = MemoryFile.create(4 * PAGE, 'x');
    file.seal('size');
    using memory = SharedMemory.open(file.duplicate());
    const bytes = new Uint8Array(memory.buffer).fill(1);
    file.write(10, Uint8Array.of(2, 3));
    assert.deepEqual([...bytes.subarray(9, 13)], [1, 2, 3, 1]);
    const before = fstatSync(file.fd).blocks;
    file.discard(PAGE, 2 * PAGE);
    assert.ok(fstatSync(file.fd).blocks < before);
    assert.ok(bytes.subarray(PAGE, 3 * PAGE).every((byte) => byte === 0));
    assert.equal(bytes[3 * PAGE], 1);
    for (const size of [PAGE, 8 * PAGE]) assert.throws(() => ftruncateSync(file.fd, size), { code: 'EPERM' });
    assert.throws(() => file.seal('writes'), { code: 'EPERM' });
  });

  test('when its writes are sealed, who has mapped it writes on, and all others only read', () => {
    using file = MemoryFile.create(PAGE, 'x');
    using writer = SharedMemory.open(file.duplicate());
    file.seal('writes');
    assert.throws(() => SharedMemory.open(file.duplicate()), { code: 'EPERM' });
    assert.throws(() => file.write(0, new Uint8Array(1)), { code: 'EPERM' });
    assert.throws(() => file.discard(0, PAGE), { code: 'EPERM' });
    using reader = SharedMemory.open(file.duplicate(), { readOnly: true });
    new Uint8Array(writer.buffer)[5] = 7;
    assert.equal(new Uint8Array(reader.buffer)[5], 7);
  });
});
