// Both ends of a ring: records come out once, in order and whole, whatever was in the memory
// before.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { RingPair } from './fixtures/ring-pair.ts';
import { nexts } from './incoming-ring.ts';
import { nextSequence, payloadOf, proofOffset, recordKinds, sequenceBefore, slotsFor } from './record-layout.ts';
import { checkGeometry, controlOffset, type Geometry, regionBytes, ringOffset } from './region-layout.ts';

const geometry: Geometry = { slotBytes: 64, slots: 32, maxRecordSlots: 4 };
const MOST = payloadOf(geometry.maxRecordSlots, geometry.slotBytes);
const usage = { code: 'MILLRACE_ERR_USAGE' };

interface Sent {
  readonly kind: number;
  readonly stream: number;
  readonly payload: Uint8Array;
  readonly credit: number;
  readonly value: number;
}

const word = fc.integer({ min: 0, max: 0xffff_ffff });
const record = fc.record({
  kind: fc.integer({ min: 2, max: 10 }),
  stream: word,
  size: fc.integer({ min: 0, max: MOST }),
  credit: fc.oneof(fc.constant(-1), word),
  value: word,
  /** Its payload imitates the trailing or leading sequence of a record so far ahead. */
  imitates: fc.integer({ min: 0, max: 40 }),
});
const step = fc.oneof(
  { weight: 4, arbitrary: fc.record({ do: fc.constant('write' as const), record }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('flush' as const), tearAt: fc.integer({ min: 0, max: 200 }) }) },
  { weight: 6, arbitrary: fc.record({ do: fc.constant('deliver' as const), index: fc.nat() }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('read' as const) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('release' as const) }) },
);
const start = fc.record({
  position: fc.oneof(fc.constant(0), fc.integer({ min: 0xffff_ff00, max: 0xffff_ffff })),
  sequence: fc.oneof(fc.constant(1), fc.integer({ min: 0xffff_ff00, max: 0xffff_ffff })),
  salt: fc.constant(0x1234_5678),
});

function imitation(size: number, sequence: number): Uint8Array {
  const words = new Uint32Array(Math.ceil(size / 4)).fill(sequence);
  // A header that would be valid: kind, stream, size, slots.
  for (let at = 7; at + 4 < words.length; at += 16) words.set([sequence, 5, 1, 4, 1], at);
  return new Uint8Array(words.buffer).slice(0, size);
}

function readAll(pair: RingPair, expected: Sent[]): void {
  const { incoming } = pair;
  for (;;) {
    const state = incoming.next();
    assert.notEqual(state, nexts.broken, incoming.problem);
    if (state === nexts.nothing) return;
    if (incoming.kind === recordKinds.pad) continue;
    const sent = expected.shift();
    assert.ok(sent !== undefined, 'a record that was never written');
    const { kind, stream, credit, value, payloadOffset, size } = incoming;
    const { payload, ...rest } = sent;
    assert.deepEqual({ kind, stream, credit, value }, rest);
    assert.deepEqual(pair.bytes.slice(payloadOffset, payloadOffset + size), payload);
  }
}

describe('the geometry of a ring', () => {
  test('numbers that make no ring are refused', () => {
    const wrong: Partial<Geometry>[] = [
      { slotBytes: 32 },
      { slotBytes: 8192 },
      { slotBytes: 96 },
      { slotBytes: 64.5 },
      { slots: 8 },
      { slots: 33 },
      { slots: 2 ** 25 },
      { slots: Number.NaN },
      { slots: -32 },
      { maxRecordSlots: 0 },
      { maxRecordSlots: 5 },
      { maxRecordSlots: 1.5 },
    ];
    for (const one of wrong) assert.throws(() => checkGeometry({ ...geometry, ...one }), usage, JSON.stringify(one));
  });

  test('the parts of a region follow each other without a gap or an overlap', () => {
    checkGeometry(geometry);
    const ringBytes = geometry.slots * geometry.slotBytes;
    assert.deepEqual([controlOffset(0), controlOffset(1), ringOffset(0, geometry)], [0, 64, 128]);
    assert.equal(ringOffset(1, geometry), 128 + ringBytes);
    assert.equal(regionBytes(geometry), 128 + 2 * ringBytes);
  });

  test('the proof behind the payload of a record is in its last slot', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 1_000_000 }), fc.constantFrom(64, 256, 4096), (size, slotBytes) => {
        const slots = slotsFor(size, slotBytes);
        assert.ok(proofOffset(size) >= 32 + size && proofOffset(size) + 4 <= slots * slotBytes);
        assert.ok(proofOffset(size) + 4 > (slots - 1) * slotBytes);
        assert.ok(size <= payloadOf(slots, slotBytes) && proofOffset(size) % 4 === 0);
      }),
    );
  });

  test('sequences leave out 0, forwards and backwards', () => {
    assert.equal(nextSequence(0xffff_ffff), 1);
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 0xffff_ffff }), fc.nat({ max: 100 }), (sequence, count) => {
        let after = sequence;
        for (let index = 0; index < count; index++) after = nextSequence(after);
        assert.equal(sequenceBefore(after, count), sequence);
      }),
    );
  });
});

describe('a ring', () => {
  for (const isInPlace of [true, false]) {
    const where = isInPlace ? 'in the same memory' : 'across a wire, in pieces and in any order';
    test(`every record comes out once, in order and whole: ${where}`, () => {
      fc.assert(
        fc.property(start, fc.array(step, { minLength: 20, maxLength: 250 }), (begin, steps) => {
          using pair = new RingPair(geometry, isInPlace, begin);
          const expected: Sent[] = [];
          for (const one of steps) {
            if (one.do === 'write') {
              const { size, imitates, ...rest } = one.record;
              let sequence = pair.outgoing.sequence;
              for (let ahead = imitates; ahead > 0; ahead--) sequence = nextSequence(sequence);
              const payload = imitation(size, sequence);
              if (pair.write(rest.kind, rest.stream, payload, rest.credit, rest.value))
                expected.push({ ...rest, payload });
            } else if (one.do === 'flush') pair.flush(one.tearAt);
            else if (one.do === 'deliver') pair.deliver(one.index);
            else if (one.do === 'read') readAll(pair, expected);
            else assert.ok(pair.release());
          }
          pair.flush(0);
          while (pair.pieces.length > 0) pair.deliver(0);
          readAll(pair, expected);
          assert.ok(pair.release());
          assert.deepEqual(expected, []);
          assert.deepEqual([pair.outgoing.usedSlots, pair.incoming.position], [0, pair.outgoing.position]);
        }),
        { numRuns: 150 },
      );
    });
  }

  test('bytes of an earlier round are never taken for the proof of a record that is still under way', () => {
    using pair = new RingPair(geometry, false, { position: 0, sequence: 1, salt: 0x1234_5678 });
    // A program that knows which sequence comes here the next time around.
    for (let index = 0; index < 8; index++) pair.write(recordKinds.data, 2, imitation(MOST, 9));
    pair.flush(0);
    while (pair.pieces.length > 0) pair.deliver(0);
    while (pair.incoming.next() === nexts.record);
    assert.ok(pair.release());
    assert.equal(pair.outgoing.sequence, 9);
    pair.write(recordKinds.data, 4, new Uint8Array(80));
    pair.flush(32);
    pair.deliver(0);
    assert.deepEqual([pair.incoming.hasNext, pair.incoming.next()], [true, nexts.nothing]);
    pair.deliver(0);
    assert.equal(pair.incoming.next(), nexts.record);
  });

  test('what is reserved fits, is never more than wanted, and is given whenever a quarter is free', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.integer({ min: 1, max: 500 }), fc.boolean()), { maxLength: 200 }), (steps) => {
        using pair = new RingPair(geometry, true);
        for (const [wanted, isRead] of steps) {
          const isRoomy = pair.outgoing.usedSlots <= geometry.slots - 2 * geometry.maxRecordSlots;
          const room = pair.outgoing.reserve(wanted);
          assert.ok(room >= 0 && room <= Math.min(wanted, MOST));
          assert.ok(room > 0 || !isRoomy, `nothing with ${pair.outgoing.usedSlots} slots used`);
          if (room > 0) pair.outgoing.commit(recordKinds.data, 2, room);
          assert.ok(pair.outgoing.usedSlots <= geometry.slots);
          if (!isRead) continue;
          while (pair.incoming.next() === nexts.record);
          assert.equal(pair.incoming.problem, '');
          assert.ok(pair.release());
        }
      }),
      { numRuns: 100 },
    );
  });

  test('records that were not read move along to other memory, with their sequences', () => {
    fc.assert(
      fc.property(start, fc.nat({ max: 12 }), fc.nat({ max: 12 }), (begin, before, after) => {
        using pair = new RingPair(geometry, true, begin);
        using other = new RingPair(geometry, true, begin);
        const payloads = Array.from({ length: before + after }, (_, index) => new Uint8Array(10 + index).fill(index));
        for (const payload of payloads.slice(0, before)) pair.write(recordKinds.data, 4, payload);
        while (pair.incoming.next() === nexts.record);
        // Read and cleared; the writer has not heard of it.
        pair.incoming.release();
        for (const payload of payloads.slice(before)) pair.write(recordKinds.data, 4, payload);
        assert.ok(pair.outgoing.moveTo(other.incoming.memory));
        const seen: number[] = [];
        while (other.incoming.next() === nexts.record)
          if (other.incoming.kind !== recordKinds.pad) seen.push(other.incoming.size);
        assert.equal(other.incoming.problem, '');
        assert.deepEqual(
          seen,
          payloads.map(({ length }) => length),
        );
      }),
      { numRuns: 100 },
    );
  });

  test('after a wipe nothing that came before is seen, and what is sent again is', () => {
    using pair = new RingPair(geometry, false);
    for (let size = 0; size < 8; size++) pair.write(recordKinds.data, 2, imitation(size * 20, 1));
    pair.flush(0);
    const again = [...pair.pieces];
    while (pair.pieces.length > 0) pair.deliver(0);
    pair.incoming.wipe();
    assert.deepEqual([pair.incoming.hasNext, pair.incoming.next()], [false, nexts.nothing]);
    pair.pieces.push(...again);
    while (pair.pieces.length > 0) pair.deliver(0);
    let count = 0;
    while (pair.incoming.next() === nexts.record) count++;
    assert.deepEqual([count, pair.incoming.problem], [8, '']);
  });
});
