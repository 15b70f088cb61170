import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { BLOCK_BYTES, SeededBytes } from './seeded-bytes.ts';

function bytesOf(seed: number, offset: number, size: number): Buffer {
  const bytes = new SeededBytes(seed);
  const parts: Buffer[] = [];
  for (let done = 0; done < size; ) {
    const part = Buffer.from(bytes.at(offset + done, size - done));
    parts.push(part);
    done += part.length;
  }
  return Buffer.concat(parts);
}

describe('seeded bytes', () => {
  test('whatever is lost, repeated, swapped or of another stream is found where it begins', () => {
    const right = bytesOf(3, 0, 3 * BLOCK_BYTES);
    const checked = new SeededBytes(3);
    const lost = Buffer.concat([right.subarray(0, 1000), right.subarray(1001)]);
    const repeated = Buffer.concat([right.subarray(0, BLOCK_BYTES), right]);
    const swapped = Buffer.concat([right.subarray(BLOCK_BYTES, 2 * BLOCK_BYTES), right.subarray(0, BLOCK_BYTES)]);
    assert.ok(Math.abs(checked.firstWrong(0, lost) - 1000) < 4);
    assert.ok(Math.abs(checked.firstWrong(0, repeated) - BLOCK_BYTES) < 4);
    assert.ok(checked.firstWrong(0, swapped) < 4);
    assert.ok(checked.firstWrong(0, bytesOf(4, 0, 100)) >= 0);
  });

  test('the right bytes are right, in parts of any size from any offset', () => {
    for (const [offset, size] of [
      [0, 1],
      [1, 7],
      [BLOCK_BYTES - 1, 2],
      [BLOCK_BYTES, BLOCK_BYTES],
      [12_345, 200_000],
    ] as const) {
      assert.equal(new SeededBytes(9).firstWrong(offset, bytesOf(9, offset, size)), -1);
    }
  });
});
