// The pages of rings: those that were read are given back, and no others.

import assert from 'node:assert/strict';
import { fstatSync } from 'node:fs';
import { describe, test } from 'node:test';
import { Fd, MemoryFile, SharedMemory } from '../native/index.ts';
import { wires } from '../providers/soft/fixtures/soft-pair.ts';
import { Dice } from './fixtures/dice.ts';
import { Joined } from './fixtures/joined.ts';
import type { Program } from './fixtures/program.ts';
import { regionBytes, ringOffset } from './region-layout.ts';
import { RingPages } from './ring-pages.ts';

const PAGE = 4096;
const geometry = { slotBytes: 64, slots: 1024, maxRecordSlots: 64 };

describe('pages of a ring', () => {
  test('of a device that writes by itself are never discarded', () => {
    assert.deepEqual(
      ['RoCEv2', 'InfiniBand', ''].map((wire) => RingPages.mayDiscard(wire)),
      [false, false, false],
    );
  });

  test('are not discarded for positions that are further apart than what is free', () => {
    const pages = new RingPages({ discard: () => assert.fail('discarded') }, geometry, 0);
    pages.discard(0, 1025);
    pages.discard(5, 4);
    pages.discard(100, 300, 199);
    pages.discard(7, 7);
  });

  test('stay where a peer has sealed the memory', () => {
    using file = MemoryFile.create(regionBytes(geometry), 'sealed');
    using memory = SharedMemory.open(Fd.duplicateOf(file.fd));
    const pages = new RingPages(memory, geometry, 0);
    pages.discard(0, 1024);
    file.seal('writes');
    assert.throws(() => memory.discard(0, PAGE), { code: 'EPERM' });
    pages.discard(0, 1024);
    pages.discard(0, 1024);
  });

  test('are those that lie wholly between two positions, whatever these are', () => {
    const dice = new Dice(1);
    const base = ringOffset(1, geometry);
    for (let round = 0; round < 2000; round++) {
      const from = (dice.below(2 ** 30) * 4 + dice.below(4)) >>> 0;
      const count = dice.below(1025);
      const discarded = new Set<number>();
      const discard = (offset: number, sizeBytes: number): void => {
        assert.ok(offset % PAGE === 0 && sizeBytes % PAGE === 0 && sizeBytes > 0);
        for (let page = offset; page < offset + sizeBytes; page += PAGE) discarded.add(page);
      };
      new RingPages({ discard }, geometry, 1).discard(from, (from + count) >>> 0);
      const isRead = (slot: number): boolean => ((slot - from) & 1023) < count;
      const first = Math.ceil(base / PAGE) * PAGE;
      for (let page = first; page + PAGE <= base + 1024 * 64; page += PAGE) {
        const slots = Array.from({ length: 64 }, (_, index) => (page - base) / 64 + index);
        // A page where the range begins and ends is left alone, though all of its slots are in it.
        const isSplit = slots.includes(from & 1023) && (page - base) / 64 !== (from & 1023);
        const expected = slots.every(isRead) && !isSplit;
        assert.equal(discarded.delete(page), expected, `from ${from}, ${count} slots, page ${page}`);
      }
      assert.equal(discarded.size, 0, 'nothing outside of the ring');
    }
  });
});

for (const wire of wires) {
  test(`a link over ${wire} that is used a little has few pages, however long; one that is used much loses no byte`, async () => {
    const wide = { slotBytes: 256, slots: 4096, maxRecordSlots: 256 };
    const options = { geometry: wide, firstWindowBytes: 65_536, windowBytes: 65_536 };
    await using joined = await Joined.up({ devices: [`soft-${wire}`], dialer: options, acceptor: options });
    joined.hasClock = true;
    const residentBytes = (): number[] =>
      joined.sessions.map(({ link }) => (link === undefined ? 0 : fstatSync(link.memory.fd).blocks * 512));
    const pair = await joined.connect();
    const say = async (bytes: number): Promise<void> => {
      for (const program of pair) program.toSend += bytes;
      await joined.until('all is said', () => pair.every((one: Program) => one.received === pair[0].toSend));
    };
    const counted = (): number => joined.sessions.reduce((sum, { counters }) => sum + counters.recordsOut, 0);
    // More than once through the ring of 1 MiB, a little between two beats.
    for (let round = 0; round < 40; round++) {
      await say(32_768);
      const before = counted();
      await joined.until('a heartbeat has passed at both', () => counted() >= before + 6);
    }
    for (const bytes of residentBytes()) assert.ok(bytes < 512 * 1024, `${bytes} bytes are resident`);
    await say(3_000_000);
    assert.ok(joined.sides.every(({ protocolErrors }) => protocolErrors.length === 0));
  });
}
