import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { compareSwap64, fetchAdd64, high64, low64, SharedMemory } from './index.ts';

function found(): bigint {
  return (BigInt(high64()) << 32n) | BigInt(low64());
}

function halves(value: bigint): [low: number, high: number] {
  const words = new Uint32Array(BigUint64Array.of(value).buffer);
  return [words[0], words[1]];
}

describe('64-bit atomics', () => {
  test('addresses that are not aligned, outside of the memory or of a closed one are refused', () => {
    const memory = SharedMemory.create({ sizeBytes: 64 });
    for (const offset of [1, 4, 57, 64, -8, 0.5, Number.NaN]) {
      assert.throws(() => fetchAdd64(memory, offset, 1, 0), { name: /RangeError|TypeError/ });
      assert.throws(() => compareSwap64(memory, offset, 0, 0, 1, 0), { name: /RangeError|TypeError/ });
    }
    assert.deepEqual(new Uint8Array(memory.buffer), new Uint8Array(64));
    memory.close();
    assert.throws(() => fetchAdd64(memory, 0, 1, 0), /the memory is closed/);
  });

  test('addition carries into the high half and wraps at 64 bits', () => {
    using memory = SharedMemory.create({ sizeBytes: 64 });
    const words = new BigUint64Array(memory.buffer);
    words[1] = 0xffff_ffffn;
    fetchAdd64(memory, 8, 1, 0);
    assert.equal(found(), 0xffff_ffffn);
    assert.equal(words[1], 2n ** 32n);
    fetchAdd64(memory, 8, ...halves(2n ** 64n - 1n));
    assert.equal(found(), 2n ** 32n);
    assert.equal(words[1], 0xffff_ffffn);
    assert.equal(words[0] + words[2], 0n);
  });

  test('a swap happens only when all 64 bits are as expected, and says what was there in either case', () => {
    using memory = SharedMemory.create({ sizeBytes: 64 });
    const words = new BigUint64Array(memory.buffer);
    const value = 0x8000_0001_ffff_fffen;
    words[0] = value;
    for (const wrong of [value + 1n, value & 0xffff_ffffn]) {
      compareSwap64(memory, 0, ...halves(wrong), 1, 2);
      assert.equal(found(), value);
      assert.equal(words[0], value);
    }
    compareSwap64(memory, 0, ...halves(value), ...halves(2n ** 63n));
    assert.equal(found(), value);
    assert.equal(words[0], 2n ** 63n);
  });

  test('processes that add to the same bytes lose nothing', async () => {
    using memory = SharedMemory.create({ sizeBytes: 64 });
    const words = new BigUint64Array(memory.buffer);
    words[0] = 2n ** 32n - 1000n;
    const times = 200_000;
    const script = join(import.meta.dirname, 'fixtures/add64-in-process.ts');
    const children = [1, 2].map(() =>
      spawn(process.execPath, [script, String(times)], { stdio: ['ignore', 'inherit', 'inherit', memory.fd] }),
    );
    const codes = await Promise.all(children.map(async (child) => (await once(child, 'exit'))[0]));
    assert.deepEqual(codes, [0, 0]);
    assert.equal(words[0], 2n ** 32n - 1000n + BigInt(2 * times) * 3n);
  });
});
