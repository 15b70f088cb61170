// Slots that two lanes mirror: bytes and words of two programs of different hosts, on each wire.
// Runs in a process of its own: it counts the descriptors of its process.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { lostWords } from '../direct/arena/index.ts';
import { wires } from '../providers/soft/fixtures/soft-pair.ts';
import { Dice } from './fixtures/dice.ts';
import { type DirectEnd, DirectPairs, RING_BYTES } from './fixtures/direct-pair.ts';
import { flowIndex } from './flow-words.ts';
import { MirroredSlot } from './mirrored-slot.ts';

const BYTES = 200_000;
/** Positions whose low halves wrap around, and that need more than 32 bits. */
const FAR = [2 ** 32 - 1000, 2 ** 40 + 2 ** 31 - 700] as const;

function both(ends: readonly DirectEnd[], isSo: (end: DirectEnd) => boolean): () => boolean {
  return () => ends.every(isSo);
}

for (const wire of wires) {
  describe(`a direct stream over ${wire}`, () => {
    test('carries bytes both ways, many times around the ring', async () => {
      await using pairs = await DirectPairs.up({ devices: [`soft-${wire}`] });
      for (const [opener, positions] of [
        [0, [0, 17]],
        [1, FAR],
      ] as const) {
        const ends = await pairs.promoted(opener, positions);
        const dice = new Dice(3);
        await pairs.until('all has come', () => {
          for (const { program } of ends) {
            if (program.sent < BYTES) program.write(Math.min(1 + dice.below(RING_BYTES), BYTES - program.sent));
            program.read(1 + dice.below(RING_BYTES));
          }
          return ends.every(({ program }) => program.received === BYTES);
        });
        for (const { stream } of ends) assert.deepEqual([stream.bytesIn, stream.bytesOut], [BYTES, BYTES]);
      }
    });

    test('a break of the transport loses nothing', async () => {
      await using pairs = await DirectPairs.up({ devices: [`soft-${wire}`] });
      const ends = await pairs.promoted();
      const total = (): number => ends[0].program.received + ends[1].program.received;
      let nextBreak = BYTES / 4;
      await pairs.until('all has come', () => {
        for (const { program } of ends) {
          if (program.sent < BYTES) program.write(Math.min(1500, BYTES - program.sent));
          program.read(RING_BYTES);
        }
        if (total() >= nextBreak) {
          nextBreak += BYTES / 2;
          pairs.joined.breakOne(nextBreak % 2);
        }
        return total() === 2 * BYTES;
      });
      assert.ok(ends.every(({ program }) => !program.isInLost && !program.isTakenBack));
    });
  });
}

describe('a direct stream', () => {
  test('tells what a program says in its slot, and not before', async () => {
    await using pairs = await DirectPairs.up();
    const [left, right] = pairs.connect();
    await pairs.turns(20);
    assert.equal(right.program.mayBegin, false);
    left.program.look();
    await pairs.until('it is told that the other looks', () => right.program.mayBegin);
    assert.equal(left.program.mayBegin, false);
    right.program.begin(5000);
    await pairs.until('it is told that the other has seen', () => right.program.isSeen);
    assert.equal(left.program.inPosition, 5000);
    assert.equal(left.program.isOtherGone, false);
    right.program.leave();
    await pairs.until('it is told that the other is gone', () => left.program.isOtherGone);
    assert.equal(right.program.isOtherGone, false);
    assert.ok([left, right].every(({ program }) => !program.isInLost && !program.isTakenBack));
  });

  test('holds a writer back while its reader stands still, and wakes it when that goes on', async () => {
    await using pairs = await DirectPairs.up();
    const [{ program: writer }, { program: reader }] = await pairs.promoted();
    assert.equal(writer.write(2 * RING_BYTES), RING_BYTES);
    await pairs.until('the ring of the reader is full', () => reader.readable === RING_BYTES);
    await pairs.turns(20);
    assert.equal(writer.write(1), 0);
    assert.ok(writer.arena.prepareSleep());
    reader.read(RING_BYTES / 2);
    // It sleeps until it is rung for room.
    await pairs.joined.until('it has room', () => writer.arena.collect() > 0);
    assert.equal(writer.room, RING_BYTES / 2);
    for (let left = RING_BYTES; left > 0; left -= 100) {
      reader.read(100);
      await pairs.turns(2);
    }
    // Less than a quarter is read and not told.
    assert.equal(reader.readable, 0);
    assert.ok(writer.room > (RING_BYTES * 3) / 4);
  });

  test('tells how far a program has read with the data of the other direction', async () => {
    await using pairs = await DirectPairs.up();
    const [{ program: left }, { program: right }] = await pairs.promoted();
    for (let round = 0; round < 100; round++) {
      left.write(64);
      await pairs.until('the request has come', () => right.read(64) === 64);
      right.write(64);
      await pairs.until('the answer has come', () => left.read(64) === 64);
      assert.equal(left.confirmed, left.sent);
    }
  });

  test('a reader that takes its ring back stops the writer where it has read', async () => {
    await using pairs = await DirectPairs.up();
    const [{ program: writer }, { program: reader }] = await pairs.promoted();
    writer.write(1000);
    await pairs.until('some has come', () => reader.readable === 1000);
    reader.read(300);
    reader.takeBack();
    await pairs.until('it is told', () => writer.isTakenBack);
    assert.equal(writer.confirmed, 300);
    // What it writes after that goes nowhere, and the other direction goes on.
    writer.write(100);
    reader.write(500);
    await pairs.until('the other direction works', () => writer.read(500) === 500);
    assert.equal(reader.readable, 700);
    assert.equal(writer.isInLost, false);
  });

  test('a reader that does not want the ring stops the writer before it begins', async () => {
    await using pairs = await DirectPairs.up();
    const [{ program: left }, { program: right }] = pairs.connect();
    right.look();
    await pairs.until('it looks', () => left.mayBegin);
    right.spoil('in', 'from', 1, 0x4000_0000);
    left.begin(10);
    left.write(100);
    await pairs.until('it is told', () => left.isTakenBack);
    assert.deepEqual([left.isSeen, right.isInLost], [false, false]);
  });

  test('a reader that retracts the ring before it has seen it stops the writer', async () => {
    await using pairs = await DirectPairs.up();
    const [{ program: left }, { program: right }] = pairs.connect();
    right.look();
    await pairs.until('it looks', () => left.mayBegin);
    left.begin(10);
    left.write(100);
    // It is not told of news meanwhile.
    await pairs.joined.until('it could see', () => right.in.isSet(flowIndex.from));
    right.spoil('in', 'from', 11, 0x4000_0000);
    await pairs.joined.until('the writer is told', () => left.isTakenBack);
    assert.deepEqual([left.isSeen, right.isInLost], [false, false]);
  });

  test('a ring that is retracted before it was told is never told', async () => {
    await using pairs = await DirectPairs.up();
    const [{ program: left }, { program: right }] = pairs.connect();
    right.look();
    await pairs.until('it looks', () => left.mayBegin);
    left.begin(10);
    left.spoil('out', 'from', 11, 0x4000_0000);
    await pairs.turns(20);
    assert.equal(right.inPosition, -1);
    assert.equal(right.isInLost, false);
  });

  test('a writer that goes back to TCP by itself is lost to its reader, which keeps what came', async () => {
    await using pairs = await DirectPairs.up();
    const [{ program: writer }, { program: reader }] = await pairs.promoted();
    writer.write(1000);
    await pairs.until('some has come', () => reader.readable === 1000);
    writer.stop();
    await pairs.until('it is told', () => reader.isInLost);
    assert.deepEqual([reader.read(1000), reader.isTakenBack, writer.isInLost], [1000, false, false]);
  });

  test('a program that leaves its slot ends the stream, and the lane forgets it at once', async () => {
    await using pairs = await DirectPairs.up();
    for (const opener of [0, 1]) {
      const [left, right] = await pairs.promoted(opener);
      let isLeft = 0;
      pairs.unmirror(left, false, () => isLeft++);
      assert.equal(isLeft, 1);
      await pairs.until('the other one is lost', () => right.program.isLost);
      pairs.unmirror(right, true, () => isLeft++);
      assert.equal(isLeft, 2);
      assert.ok(!left.program.isInLost);
      await pairs.joined.assertNothingIsLeft();
    }
  });

  test('what a killed program has written still arrives, however full the link is, and then its end', async () => {
    await using pairs = await DirectPairs.up({ devices: ['soft-tcp'] }, 1 << 17);
    const [left, right] = await pairs.promoted(0, [FAR[0], 0]);
    pairs.joined.acceptor.isPaused = true;
    // More than the link's ring takes.
    const size = left.program.write(1 << 17);
    let isLeft = false;
    pairs.unmirror(left, true, () => {
      isLeft = true;
    });
    await pairs.turns(20);
    assert.equal(isLeft, false);
    pairs.joined.acceptor.isPaused = false;
    await pairs.until('the end has come', () => right.program.inEnd >= 0);
    assert.deepEqual([isLeft, right.program.inEnd, right.program.read(size)], [true, FAR[0] + size, size]);
    await pairs.until('nobody reads the other direction', () => right.program.isTakenBack);
    assert.equal(right.program.isInLost, false);
    pairs.unmirror(right, false);
    await pairs.joined.assertNothingIsLeft();
  });

  test('a killed program that had not begun just ends', async () => {
    await using pairs = await DirectPairs.up();
    const [left, right] = pairs.connect();
    let isLeft = false;
    pairs.unmirror(left, true, () => {
      isLeft = true;
    });
    await pairs.until('the other one is lost', () => right.program.isLost);
    assert.ok(isLeft);
    await pairs.joined.assertNothingIsLeft();
  });

  test('a link that is dropped loses the slots of both sides, open or expected', async () => {
    await using pairs = await DirectPairs.up();
    const ends = [...(await pairs.promoted()), ...pairs.connect(1)];
    const session = pairs.joined.dialer.sessions[0];
    session.close('by order of the test');
    await pairs.until(
      'all are lost',
      both(ends, ({ program }) => program.isLost),
    );
    const { arena } = ends[0];
    assert.ok(!arena.isClosed);
  });

  test('a key that nobody expects is answered with a reset', async () => {
    await using pairs = await DirectPairs.up();
    const [left, right] = pairs.connect();
    await pairs.turns(5);
    pairs.unmirror(right, false);
    await pairs.until('it is lost', () => left.program.isLost);
    // Expected no more when it is opened.
    const [one, other] = pairs.connect();
    pairs.unmirror(other, false);
    one.program.begin(0);
    one.program.write(3000);
    await pairs.until('it is lost', () => one.program.isLost);
    await pairs.joined.assertNothingIsLeft();
    assert.deepEqual(
      pairs.joined.sides.flatMap(({ protocolErrors }) => protocolErrors),
      [],
    );
  });

  test('a second slot under the same key takes the place of the first, which is lost', async () => {
    await using pairs = await DirectPairs.up();
    const [, first] = pairs.connect();
    const session = pairs.joined.acceptor.sessions[0];
    assert.deepEqual([...(session.link?.directStreams ?? [])], [first.stream]);
    const second = session.mirror(first.stream.key, new MirroredSlot(first.arena, 0), false);
    assert.deepEqual([...(session.link?.directStreams ?? [])], [second]);
    await pairs.until('it is lost', () => first.program.isLost);
  });
});

describe('random pieces in random order', () => {
  for (let seed = 0; seed < 20; seed++) {
    test(`are exact both ways, seed ${seed}`, async () => {
      const dice = new Dice(seed);
      const wire = wires[seed % wires.length];
      await using pairs = await DirectPairs.up({ devices: [`soft-${wire}`], hasClock: true });
      const ends: DirectEnd[] = [];
      for (let count = 1 + dice.below(4); count > 0; count--) {
        const near = (): number => FAR[dice.below(2)] + dice.below(2000);
        ends.push(...(await pairs.promoted(dice.below(2), [near(), near()])));
      }
      const bytes = 20_000;
      await pairs.until('all has come', () => {
        for (let steps = dice.below(12); steps > 0; steps--) {
          const { program } = ends[dice.below(ends.length)];
          const most = 1 + dice.below([10, 300, RING_BYTES][dice.below(3)]);
          if (dice.below(3) < 2) program.write(Math.min(most, bytes - program.sent));
          else program.read(most);
        }
        if (dice.below(80) === 0) pairs.joined.breakOne(dice.below(2));
        return ends.every((end) => end.program.received === bytes);
      });
    });
  }
});

describe('a direct stream that moves bulk', () => {
  const geometry = { slotBytes: 256, slots: 8192, maxRecordSlots: 1024 };
  const bulkRing = 256 * 1024;
  const total = 9 * 1024 * 1024;

  /**
   * When all has come or the stream was left: what was written, and the words of writer and reader.
   */
  async function moved(wire: string, pieceBytes: number): Promise<{ bytes: number; words: readonly number[] }> {
    await using pairs = await DirectPairs.up(
      { devices: [`soft-${wire}`], dialer: { geometry }, acceptor: { geometry } },
      bulkRing,
    );
    const ends = await pairs.promoted();
    const [{ program: writer }, { program: reader }] = ends;
    await pairs.until('all has come, or it was left', () => {
      if (writer.isTakenBack) return reader.isLost;
      if (writer.sent === reader.received) writer.write(pieceBytes);
      reader.read(bulkRing);
      return reader.received >= total;
    });
    return { bytes: writer.sent, words: ends.map(({ program }) => program.lostWord) };
  }

  test('is left to TCP where the wire is TCP as well', async () => {
    const { bytes, words } = await moved('tcp', 64 * 1024);
    assert.ok(bytes < total);
    assert.deepEqual(words, [lostWords.bulk, lostWords.lost]);
  });

  test('stays where its pieces are small', async () => {
    assert.deepEqual((await moved('tcp', 8 * 1024)).words, [0, 0]);
  });

  test('stays on other wires', async () => {
    assert.deepEqual((await moved('shm', 64 * 1024)).words, [0, 0]);
  });
});
