import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { AGAIN, EventFd, SharedMemory, storeRelease } from '../../native/index.ts';
import { Pieces } from './pieces.ts';
import { RingReader, RingWriter, ringBytes } from './shm-ring.ts';

const CAPACITY = 4096;

function makeRing(stack: DisposableStack): {
  memory: SharedMemory;
  writer: RingWriter;
  reader: RingReader;
  readerEvent: EventFd;
  writerEvent: EventFd;
} {
  const memory = stack.use(SharedMemory.create({ sizeBytes: ringBytes(CAPACITY) }));
  const readerEvent = stack.use(EventFd.create());
  const writerEvent = stack.use(EventFd.create());
  const writer = new RingWriter(memory, readerEvent);
  const reader = new RingReader(memory, writerEvent);
  return { memory, writer, reader, readerEvent, writerEvent };
}

describe('a ring in shared memory', () => {
  test('of a size that is no power of two is refused', () => {
    using stack = new DisposableStack();
    const memory = stack.use(SharedMemory.create({ sizeBytes: ringBytes(5000) }));
    assert.throws(() => new RingReader(memory, stack.use(EventFd.create())), { code: 'MILLRACE_ERR_FAILED' });
  });

  test('with an invalid index of the other side throws instead of reading', () => {
    using stack = new DisposableStack();
    const { memory, reader, writer } = makeRing(stack);
    const words = new Int32Array(memory.buffer);
    for (const head of [CAPACITY + 1, -1, 0x7fff_ffff]) {
      storeRelease(words, 0, head);
      assert.throws(() => reader.read(memory, 0, 8), { code: 'MILLRACE_ERR_FAILED' });
    }
    storeRelease(words, 16, 1);
    assert.throws(() => writer.write(new Pieces(), 0), { code: 'MILLRACE_ERR_FAILED' });
  });

  test('wakes a reader that sleeps, once, and a writer that waits for room', () => {
    using stack = new DisposableStack();
    const { reader, writer, readerEvent, writerEvent } = makeRing(stack);
    const memory = stack.use(SharedMemory.create({ sizeBytes: CAPACITY }));
    const pieces = new Pieces();
    pieces.add(memory, 0, CAPACITY);
    assert.equal(reader.sleep(), true);
    assert.equal(writer.write(pieces, 0), CAPACITY);
    writer.flush();
    writer.flush();
    assert.equal(readerEvent.take(), 1);
    assert.equal(reader.sleep(), false);
    assert.equal(writer.write(pieces, 0), AGAIN);
    assert.equal(reader.read(memory, 0, 10), 10);
    assert.equal(reader.read(memory, 0, 10), 10);
    assert.equal(writerEvent.take(), 1);
    assert.equal(writer.write(pieces, 0), 20);
  });

  test('gives the bytes in the order in which they came, whatever the sizes and however often it wraps', () => {
    using stack = new DisposableStack();
    const { reader, writer } = makeRing(stack);
    const from = stack.use(SharedMemory.create({ sizeBytes: 16_384 }));
    const to = stack.use(SharedMemory.create({ sizeBytes: 16_384 }));
    const source = new Uint8Array(from.buffer);
    const target = new Uint8Array(to.buffer);
    const expected: number[] = [];
    let counter = 0;
    const step = fc.oneof(
      fc.record({
        kind: fc.constant('write'),
        sizes: fc.array(fc.nat(1500), { minLength: 1, maxLength: 4 }),
        skip: fc.nat(50),
      }),
      fc.record({ kind: fc.constant('read'), sizes: fc.tuple(fc.nat(5000)), skip: fc.constant(0) }),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
        for (const { kind, sizes, skip } of steps) {
          if (kind === 'read') {
            const got = reader.read(to, 3, sizes[0] + 1);
            if (got === AGAIN) assert.equal(expected.length, 0);
            else assert.deepEqual([...target.subarray(3, 3 + got)], expected.splice(0, got));
            continue;
          }
          const pieces = new Pieces();
          let at = 0;
          for (const size of sizes) {
            pieces.add(from, at, size);
            at += size;
          }
          for (let i = 0; i < at; i++) source[i] = counter++ * 7;
          if (skip >= at) continue;
          const wrote = writer.write(pieces, skip);
          if (wrote === AGAIN) assert.equal(expected.length, CAPACITY);
          else expected.push(...source.subarray(skip, skip + wrote));
        }
      }),
      { numRuns: 300 },
    );
  });
});
