// Tests of slots and memory of pairs of programs.

import assert from 'node:assert/strict';
import { fstatSync } from 'node:fs';
import { test } from 'node:test';
import { EventFd, Fd, Poller, pollEvents } from '../native/index.ts';
import { Arenas, partyOfLane } from './arenas.ts';
import { SLOTS } from './layout.ts';

const ringBytes = 4096;
const unlimited = 2 ** 40;

test('there is no slot beyond the limit of memory, and one again when one was given back', () => {
  using arenas = new Arenas({ ringBytes, memoryBytes: 5 * ringBytes });
  const places = [arenas.take(1, 2), arenas.take(3, 4)];
  assert.ok(places.every((place) => place !== undefined));
  assert.equal(arenas.take(1, 2), undefined);
  arenas.giveBack(places[0] ?? assert.fail());
  assert.equal(arenas.places, 1);
  assert.notEqual(arenas.take(5, 6), undefined);
});

test('a pair has one arena, whoever of them comes first, and another one when it is full', () => {
  using arenas = new Arenas({ ringBytes, memoryBytes: unlimited });
  const taken = Array.from({ length: SLOTS }, (_, index) => (index % 2 === 0 ? arenas.take(1, 2) : arenas.take(2, 1)));
  assert.equal(new Set(taken.map((place) => place?.arena.id)).size, 1);
  assert.equal(new Set(taken.map((place) => place?.slot)).size, SLOTS);
  const more = arenas.take(2, 1) ?? assert.fail();
  assert.notEqual(more.arena.id, taken[0]?.arena.id);
  assert.notEqual(arenas.take(1, 3)?.arena.id, more.arena.id);
  assert.notEqual(more.arena.partyOf(1), more.arena.partyOf(2));
});

test('the parties hear each other, and share one memory', () => {
  using arenas = new Arenas({ ringBytes, memoryBytes: unlimited });
  const { arena } = arenas.take(1, 2) ?? assert.fail();
  const [memory, own, other] = arena.fdsFor(0);
  assert.deepEqual(arena.fdsFor(1), [memory, other, own]);
  assert.equal(fstatSync(memory).size, 64 * 1024 + 2 * SLOTS * ringBytes);
});

test('a program hears its lane, and never has what the lane writes to', () => {
  using arenas = new Arenas({ ringBytes, memoryBytes: unlimited });
  const { arena } = arenas.take(1, partyOfLane(0)) ?? assert.fail();
  const [, heard, written] = arena.fdsFor(0);
  const [, laneHears, laneWrites] = arena.fdsFor(1);
  assert.equal(written, laneHears);
  assert.notEqual(heard, laneWrites);
  using poller = Poller.create();
  poller.add(heard, pollEvents.in | pollEvents.edge, 7);
  using doorbell = EventFd.adopt(Fd.duplicateOf(laneWrites).release());
  assert.equal(poller.wait(0), 0);
  // Each ring is heard, though nobody empties anything.
  for (let ring = 0; ring < 3; ring++) {
    doorbell.signal();
    assert.equal(poller.wait(0), 1);
    assert.equal(poller.wait(0), 0);
  }
});

test('the arenas of a program that ended are closed and not used again, and no others', () => {
  using arenas = new Arenas({ ringBytes, memoryBytes: unlimited });
  const [first, second, third] = [arenas.take(1, 2), arenas.take(1, 3), arenas.take(2, 3)];
  assert.deepEqual(new Set(arenas.closeOf(1)), new Set([first?.arena, second?.arena]));
  assert.deepEqual(arenas.closeOf(1), []);
  assert.equal(third?.arena.isClosed, false);
  // The other program of a closed arena gives its slot back later.
  assert.equal(arenas.places, 3);
  arenas.giveBack(first ?? assert.fail());
  assert.equal(arenas.places, 2);
  const again = arenas.take(1, 2);
  assert.ok(again !== undefined && again.arena.id > (third?.arena.id ?? 0));
  assert.deepEqual(arenas.closeOf(2), [third?.arena, again.arena]);
});
