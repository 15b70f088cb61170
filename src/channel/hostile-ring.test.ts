// A ring whose other end is hostile: whatever stands there is a valid record, nothing, or a
// protocol error in words.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { RingPair } from './fixtures/ring-pair.ts';
import { nexts } from './incoming-ring.ts';
import { MAX_KIND, payloadOf, recordKinds, recordWords } from './record-layout.ts';
import { type Geometry, readerModes, ringOffset } from './region-layout.ts';

const geometry: Geometry = { slotBytes: 64, slots: 32, maxRecordSlots: 4 };
const BASE = ringOffset(0, geometry);
const END = BASE + geometry.slots * geometry.slotBytes;
const word = fc.oneof(fc.integer({ min: 0, max: 0xffff_ffff }), fc.integer({ min: 0, max: 40 }));

/** Writes the header of the next record by hand. */
function forge(pair: RingPair, fields: Partial<Record<keyof typeof recordWords, number>>, proofAt = 0): void {
  const at = (pair.incoming.cursor & (geometry.slots - 1)) * (geometry.slotBytes / 4) + BASE / 4;
  const whole = {
    sequence: pair.incoming.sequence,
    kind: recordKinds.ping,
    stream: 0,
    size: 0,
    slots: 1,
    credit: 0,
    value: 0,
    proof: fields.sequence ?? pair.incoming.sequence,
  };
  for (const [name, index] of Object.entries(recordWords)) {
    pair.words[at + index] = { ...whole, ...fields }[name as keyof typeof recordWords];
  }
  pair.words[at + 8 + proofAt] = pair.incoming.sequence;
}

function assertSane({ incoming }: RingPair): void {
  const { kind, size, payloadOffset, stream, credit, value } = incoming;
  assert.ok(
    kind >= 1 && kind <= MAX_KIND && size >= 0 && size <= payloadOf(geometry.maxRecordSlots, geometry.slotBytes),
  );
  assert.ok(payloadOffset >= BASE + 32 && payloadOffset + size <= END - 4, `payload at ${payloadOffset}`);
  assert.ok(stream >= 0 && value >= 0 && credit >= -1 && credit <= 0xffff_ffff);
}

describe('a ring that a hostile peer writes', () => {
  const protocolErrors: readonly [string, Parameters<typeof forge>[1], RegExp][] = [
    ['a sequence that is not due', { sequence: 9 }, /record 9 where 1 is due/],
    ['no kind', { kind: 0 }, /of kind 0/],
    ['an unknown kind', { kind: MAX_KIND + 1 }, /of kind 15/],
    ['an unknown flag', { kind: recordKinds.data | 0x200 }, /of kind 5/],
    ['no slots', { slots: 0 }, /of 0 slots/],
    ['more slots than a record may have', { slots: 5, size: 250 }, /of 5 slots/],
    ['slots past the end of the ring', { slots: 0xffff_ffff }, /of 4294967295 slots/],
    ['more bytes than its slots', { size: 100 }, /100 bytes in 1 slots/],
    ['bytes that overflow', { size: 0xffff_fffe }, /4294967294 bytes in 1 slots/],
    ['fewer bytes than its slots', { slots: 4, size: 3 }, /3 bytes in 4 slots/],
    ['a pad that ends early', { kind: recordKinds.pad, slots: 3 }, /of 3 slots, 32 before the end/],
    ['a pad with bytes', { kind: recordKinds.pad, slots: 32, size: 8 }, /of 32 slots/],
  ];
  for (const [name, fields, problem] of protocolErrors) {
    test(`${name} is a protocol error`, () => {
      using pair = new RingPair(geometry, true);
      forge(pair, fields);
      assert.equal(pair.incoming.next(), nexts.broken);
      assert.match(pair.incoming.problem, problem);
      assert.equal(pair.incoming.cursor, 0);
    });
  }

  test('slots that end past the ring are a protocol error, though they are few', () => {
    using pair = new RingPair(geometry, true);
    for (let count = 0; count < 30; count++) pair.write(recordKinds.ping, 0, new Uint8Array());
    while (pair.incoming.next() === nexts.record);
    forge(pair, { kind: recordKinds.data, slots: 3, size: 150 });
    assert.equal(pair.incoming.next(), nexts.broken);
    assert.match(pair.incoming.problem, /of 3 slots, 2 before the end/);
  });

  test('a record without the proof behind its payload has not arrived', () => {
    using pair = new RingPair(geometry, true);
    forge(pair, { kind: recordKinds.data, size: 20 });
    assert.deepEqual([pair.incoming.next(), pair.incoming.hasNext], [nexts.nothing, true]);
    forge(pair, { kind: recordKinds.data, size: 20 }, 5);
    assert.equal(pair.incoming.next(), nexts.record);
  });

  test('a header is judged only when all of it is there, byte by byte', () => {
    for (const earlier of [0, 0xab, 0xff]) {
      const start = { position: 0, sequence: 0x7654_3210, salt: 0x0123_4567 };
      using pair = new RingPair(geometry, false, start);
      using source = new RingPair(geometry, true, start);
      source.write(recordKinds.data, 6, new Uint8Array(20).fill(7), 4096, 3);
      pair.bytes.fill(earlier, BASE, END);
      pair.words[BASE / 4] = 0;
      for (let count = 0; count < 56; count++) {
        assert.equal(pair.incoming.next(), nexts.nothing, `after ${count} bytes, over ${earlier}`);
        pair.bytes[BASE + count] = source.bytes[BASE + count];
      }
      assert.equal(pair.incoming.next(), nexts.record);
      assert.deepEqual([pair.incoming.size, pair.incoming.credit, pair.incoming.stream], [20, 4096, 6]);
    }
  });

  test('a header that changes after it was read changes nothing', () => {
    using pair = new RingPair(geometry, true);
    pair.write(recordKinds.data, 6, new Uint8Array(20));
    assert.equal(pair.incoming.next(), nexts.record);
    pair.words.fill(0xffff_ffff, BASE / 4, END / 4);
    assertSane(pair);
    assert.deepEqual([pair.incoming.size, pair.incoming.stream, pair.incoming.cursor], [20, 6, 1]);
  });

  test('any contents are a record, nothing or a protocol error, within the ring', () => {
    const header = fc.record({
      kind: fc.oneof(word, fc.integer({ min: 1, max: MAX_KIND })),
      stream: word,
      size: word,
      slots: word,
      credit: word,
      value: word,
      isDue: fc.boolean(),
      proofAt: fc.nat({ max: 60 }),
    });
    fc.assert(
      fc.property(fc.array(header, { minLength: 1, maxLength: 40 }), ({ length, ...headers }) => {
        using pair = new RingPair(geometry, true);
        for (let index = 0; index < length; index++) {
          const { isDue, proofAt, ...fields } = headers[index];
          forge(pair, isDue ? fields : { ...fields, sequence: fields.value }, proofAt);
          const before = pair.incoming.cursor;
          const state = pair.incoming.next();
          if (state === nexts.record) assertSane(pair);
          else assert.equal(pair.incoming.cursor, before);
          if (state === nexts.broken) assert.ok(pair.incoming.problem.length > 0 && pair.incoming.problem.length < 100);
          pair.incoming.release();
        }
      }),
      { numRuns: 500 },
    );
  });
});

describe('a ring that a hostile peer reads', () => {
  test('an index past what was written, or behind what was read, is refused', () => {
    fc.assert(
      fc.property(fc.nat({ max: 20 }), fc.nat({ max: 20 }), word, (count, read, claim) => {
        using pair = new RingPair(geometry, true);
        for (let index = 0; index < count; index++) pair.write(recordKinds.ping, 0, new Uint8Array());
        const honest = Math.min(read, count);
        assert.equal(pair.claimRead(honest), true);
        const isPossible = claim >= honest && claim <= count;
        assert.equal(pair.claimRead(claim), isPossible);
        assert.equal(pair.outgoing.peerPosition, isPossible ? claim : honest);
      }),
    );
  });

  test('records that the peer has overwritten are not moved, and not taken for records', () => {
    for (const slots of [0, 5, 33, 0xffff_ffff]) {
      using pair = new RingPair(geometry, true);
      using other = new RingPair(geometry, true);
      for (let index = 0; index < 4; index++) pair.write(recordKinds.ping, 0, new Uint8Array());
      pair.words[BASE / 4 + 16 + recordWords.slots] = slots;
      assert.equal(pair.outgoing.slotsAt(1), 0);
      assert.equal(pair.outgoing.moveTo(other.incoming.memory), false);
    }
  });

  test('the peer cannot begin a new transport with a position that was never written', () => {
    using pair = new RingPair(geometry, true);
    pair.write(recordKinds.ping, 0, new Uint8Array());
    assert.equal(pair.outgoing.restart(2, readerModes.events), false);
    assert.equal(pair.outgoing.restart(1, readerModes.events), true);
  });
});
