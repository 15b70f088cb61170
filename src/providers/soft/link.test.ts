// What a link puts into memory while a frame is on its way: whole lines, in order, however the
// bytes arrive.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { AGAIN, SharedMemory } from '../../native/index.ts';
import { beginFrame, frameTypes, HEADER_BYTES, HEADER_WORDS } from './frame.ts';
import { Link, SCRATCH_BYTES } from './link.ts';
import type { Pieces } from './pieces.ts';
import type { ByteStream } from './stream.ts';

const LINE_BYTES = 64;
const SHORT_BYTES = 2048;
const OLD = 0x11;
const NEW = 0xee;

/** Bytes that arrive in parts: no receive gets more than has come. */
class Trickle implements ByteStream {
  readonly mayReceive = false;
  readonly #bytes: Uint8Array;
  #at = 0;
  #arrived = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  get waitingBytes(): number {
    return this.#arrived - this.#at;
  }

  get isOver(): boolean {
    return this.#at === this.#bytes.length;
  }

  arrive(count: number): void {
    this.#arrived = Math.min(this.#bytes.length, this.#arrived + count);
  }

  send(pieces: Pieces, skip: number): number {
    return pieces.totalBytes - skip;
  }

  receive(memory: SharedMemory, offset: number, length: number): number {
    const part = this.#bytes.subarray(this.#at, this.#at + Math.min(length, this.waitingBytes));
    if (part.length === 0) return AGAIN;
    new Uint8Array(memory.buffer, offset, part.length).set(part);
    this.#at += part.length;
    return part.length;
  }

  flush(): void {}
  close(): void {}
}

function frameOf(payloadBytes: number): Uint8Array {
  const words = new Uint32Array(HEADER_WORDS);
  beginFrame(words, frameTypes.write, 0, 0, payloadBytes);
  const bytes = new Uint8Array(HEADER_BYTES + payloadBytes).fill(NEW);
  bytes.set(new Uint8Array(words.buffer));
  return bytes;
}

/**
 * How many bytes from `offset` on are new. Fails where new ones come after old ones, or a line is
 * half of each.
 */
function placedBytes(memory: Uint8Array, offset: number, length: number): number {
  const payload = memory.subarray(offset, offset + length);
  const firstOld = payload.indexOf(OLD);
  const placed = firstOld < 0 ? length : firstOld;
  assert.equal(payload.lastIndexOf(NEW), placed - 1, 'new bytes behind old ones');
  assert.ok(placed === 0 || placed === length || (offset + placed) % LINE_BYTES === 0, `${placed} bytes, half a line`);
  return placed;
}

test('memory changes by whole lines, and all at once where a payload is short', () => {
  using scratch = SharedMemory.create({ sizeBytes: SCRATCH_BYTES });
  using target = SharedMemory.create({ sizeBytes: 65_536 });
  const memory = new Uint8Array(target.buffer);
  const sizes = fc.oneof(fc.integer({ min: 1, max: 300 }), fc.integer({ min: 1, max: 20_000 }));
  const parts = fc.array(fc.oneof(fc.integer({ min: 1, max: 100 }), fc.integer({ min: 1, max: 5000 })), {
    minLength: 1,
  });
  fc.assert(
    fc.property(sizes, fc.nat(200), parts, fc.nat(20_000), (size, offset, arrivals, cut) => {
      memory.fill(OLD);
      const stream = new Trickle(Buffer.concat([frameOf(size), frameOf(0)]));
      const frames: boolean[] = [];
      // In one piece, or in two that lie apart.
      const firstBytes = cut % size;
      const secondOffset = 40_000 + offset;
      const link = new Link(
        stream,
        {
          onHeader: (_header, into) => {
            if (firstBytes > 0) into.add(target, offset, firstBytes);
            into.add(target, secondOffset, size - firstBytes);
            return true;
          },
          onFrame: (_header, isIntact) => frames.push(isIntact),
          nextFrame: () => false,
          onBroken: (reason) => assert.fail(reason),
          onClosing: () => {},
        },
        { scratch, hasSums: false, faults: undefined },
      );
      for (let turn = 0; !stream.isOver; turn++) {
        stream.arrive(arrivals[turn % arrivals.length]);
        link.pump(0);
        const first = placedBytes(memory, offset, firstBytes);
        const second = placedBytes(memory, secondOffset, size - firstBytes);
        assert.ok(first === firstBytes || second === 0, 'the second piece before the first');
        if (size <= SHORT_BYTES) assert.ok([0, size].includes(first + second), `${first + second} of ${size} bytes`);
      }
      assert.deepEqual(frames, [true, true]);
      assert.equal(memory.indexOf(NEW), firstBytes > 0 ? offset : secondOffset);
      assert.equal(memory.lastIndexOf(NEW), secondOffset + size - firstBytes - 1);
    }),
  );
});
