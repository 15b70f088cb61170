// The arenas of a lane, as the main thread tells of them: two lanes' mirrors over a link between
// two sides.
// Runs in a process of its own: it counts the descriptors of its process.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DirectProgram, TestArena } from '../channel/fixtures/direct-program.ts';
import { Joined, openFds } from '../channel/fixtures/joined.ts';
import { EventFd, Fd, MemoryFile } from '../native/index.ts';
import type { FromLane } from './messages.ts';
import { Mirrors } from './mirrors.ts';

const RING_BYTES = 8192;
const KEY = '00112233445566778899aabbccddeeff';

/** One lane's mirrors, and one program with one slot. */
class Host implements Disposable {
  readonly mirrors: Mirrors;
  readonly told: FromLane[] = [];
  readonly arena = new TestArena(RING_BYTES);
  readonly program: DirectProgram;
  readonly #joined: Joined;
  readonly #side: 0 | 1;

  constructor(joined: Joined, side: 0 | 1, slot: number) {
    this.#joined = joined;
    this.#side = side;
    const { loop, sessions, arenas } = joined.sides[side];
    this.mirrors = new Mirrors({
      loop,
      sessionOf: (peer, link) => (peer === 'other' ? sessions[link] : undefined),
      tell: (message) => this.told.push(message),
    });
    arenas.push(this.mirrors);
    this.program = new DirectProgram(this.arena.map(0), slot);
  }

  hear(message: Parameters<Mirrors['hear']>[0]): void {
    this.mirrors.hear(message);
    this.#joined.sides[this.#side].wake();
  }

  introduce(arena: number): void {
    const [memoryFd, doorbellFd, programDoorbellFd] = this.arena.fdsFor(1);
    this.hear({ kind: 'arena', arena, ringBytes: RING_BYTES, memoryFd, doorbellFd, programDoorbellFd });
  }

  close(): void {
    this.mirrors.close();
    this.arena.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

async function untilRead(joined: Joined, hosts: readonly Host[], bytes: number): Promise<void> {
  await joined.until('all has come', () => {
    for (const { program } of hosts) {
      program.step();
      program.read(RING_BYTES);
    }
    return hosts.every(({ program }) => program.received >= bytes);
  });
}

async function promote(joined: Joined, hosts: readonly [Host, Host], slots: readonly [number, number]): Promise<void> {
  for (const [index, host] of hosts.entries()) host.introduce(index + 1);
  const common = { kind: 'mirror', peer: 'other', link: 0, key: KEY } as const;
  hosts[1].hear({ ...common, arena: 2, slot: slots[1], isOpener: false });
  hosts[0].hear({ ...common, arena: 1, slot: slots[0], isOpener: true });
  const programs = hosts.map(({ program }) => program);
  for (const program of programs) program.look();
  await joined.until('both look', () => programs.every((program) => program.mayBegin));
  for (const program of programs) program.begin(1000);
  await joined.until('both have seen', () => {
    for (const program of programs) program.step();
    return programs.every((program) => program.isSeen);
  });
}

test('what is told of unknown arenas and slots, or of a peer that is gone, harms nothing', async () => {
  await using joined = await Joined.up();
  using host = new Host(joined, 0, 5);
  host.hear({ kind: 'arenaGone', arena: 7 });
  host.hear({ kind: 'mirror', arena: 7, slot: 5, peer: 'other', link: 0, key: KEY, isOpener: true });
  host.hear({ kind: 'unmirror', arena: 7, slot: 5, isEnded: true });
  assert.deepEqual(host.told, [{ kind: 'unmirrored', arena: 7, slot: 5 }]);
  host.introduce(1);
  for (const [peer, link] of [
    ['nobody', 0],
    ['other', 9],
  ] as const) {
    host.program.spoil('in', 'isLost', 0);
    host.hear({ kind: 'mirror', arena: 1, slot: 5, peer, link, key: KEY, isOpener: true });
    await joined.turn();
    assert.ok(host.program.isLost);
    host.hear({ kind: 'unmirror', arena: 1, slot: 5, isEnded: false });
    assert.deepEqual(host.told.pop(), { kind: 'unmirrored', arena: 1, slot: 5 });
  }
});

test('memory that is too small, or none, is not mapped, and its descriptors are closed', async () => {
  await using joined = await Joined.up();
  using host = new Host(joined, 0, 0);
  const before = openFds();
  using small = MemoryFile.create(4096, 'small');
  using other = EventFd.create();
  for (const memory of [small.fd, other.fd]) {
    const memoryFd = Fd.duplicateOf(memory).release();
    const [doorbellFd, programDoorbellFd] = [EventFd.create().release(), EventFd.create().release()];
    host.hear({ kind: 'arena', arena: 1, ringBytes: RING_BYTES, memoryFd, doorbellFd, programDoorbellFd });
    const last = host.told.pop();
    assert.equal(last?.kind, 'error');
  }
  assert.equal(openFds(), before + 2);
});

test('two programs talk by way of their lanes, which sleep and are woken by doorbells', async () => {
  await using joined = await Joined.up();
  using left = new Host(joined, 0, 3);
  using right = new Host(joined, 1, 63);
  await promote(joined, [left, right], [3, 63]);
  for (let round = 1; round <= 20; round++) {
    await joined.until('both lanes sleep', () => joined.sides.every(({ isAsleep }) => isAsleep));
    for (const { program } of [left, right]) program.write(100);
    await untilRead(joined, [left, right], round * 100);
  }
  left.program.write(5000);
  left.hear({ kind: 'unmirror', arena: 1, slot: 3, isEnded: true });
  await joined.until('the lane has left the slot', () => left.told.length > 0);
  assert.deepEqual(left.told, [{ kind: 'unmirrored', arena: 1, slot: 3 }]);
  await joined.until('the end has come', () => right.program.inEnd === 1000 + 2000 + 5000);
  right.hear({ kind: 'unmirror', arena: 2, slot: 63, isEnded: false });
  assert.deepEqual(right.told, [{ kind: 'unmirrored', arena: 2, slot: 63 }]);
  await joined.assertNothingIsLeft();
});

test('an arena that is gone loses its streams, answers what was left, and is unmapped', async () => {
  await using joined = await Joined.up();
  const before = openFds();
  using left = new Host(joined, 0, 0);
  using right = new Host(joined, 1, 40);
  const known = openFds();
  await promote(joined, [left, right], [0, 40]);
  assert.ok(left.program.arena.prepareSleep());
  joined.dialer.isPaused = true;
  left.hear({ kind: 'arenaGone', arena: 1 });
  // It is told before the memory is gone.
  assert.ok(left.program.isLost);
  assert.ok(left.program.arena.collect() > 0);
  joined.dialer.isPaused = false;
  await joined.until('the other side hears of it', () => right.program.isLost);
  left.hear({ kind: 'unmirror', arena: 1, slot: 0, isEnded: false });
  assert.deepEqual(left.told, [{ kind: 'unmirrored', arena: 1, slot: 0 }]);
  right.mirrors.close();
  assert.equal(openFds(), known);
  await joined.assertNothingIsLeft();
  assert.ok(known > before);
});

test('when all are to leave, programs are told at once', async () => {
  await using joined = await Joined.up();
  using left = new Host(joined, 0, 3);
  using right = new Host(joined, 1, 63);
  await promote(joined, [left, right], [3, 63]);
  left.hear({ kind: 'unmirrorAll' });
  await joined.until('both are told', () => [left, right].every(({ program }) => program.isLost));
  left.hear({ kind: 'unmirror', arena: 1, slot: 3, isEnded: false });
  assert.deepEqual(left.told, [{ kind: 'unmirrored', arena: 1, slot: 3 }]);
  await joined.assertNothingIsLeft();
});

test('when all are to leave, what a program that has ended had written still arrives', async () => {
  await using joined = await Joined.up();
  using left = new Host(joined, 0, 3);
  using right = new Host(joined, 1, 63);
  await promote(joined, [left, right], [3, 63]);
  left.program.write(RING_BYTES);
  left.hear({ kind: 'unmirror', arena: 1, slot: 3, isEnded: true });
  left.hear({ kind: 'unmirrorAll' });
  await joined.until('all has come', () => {
    right.program.step();
    right.program.read(RING_BYTES);
    return right.program.inEnd === 1000 + RING_BYTES;
  });
  assert.equal(right.program.received, RING_BYTES);
  await joined.assertNothingIsLeft();
});

test('a ring that was idle between two words of the main thread gives its pages back, and is used again', async () => {
  await using joined = await Joined.up();
  using one = new Host(joined, 0, 5);
  using other = new Host(joined, 1, 6);
  const hosts = [one, other] as const;
  await promote(joined, hosts, [5, 6]);
  for (let round = 1; round <= 3; round++) {
    // Less than the ring: what was read is told to the writer a quarter later.
    for (const { program } of hosts) assert.equal(program.write(RING_BYTES / 2), RING_BYTES / 2);
    await untilRead(joined, hosts, round * (RING_BYTES / 2));
    const used = one.arena.residentBytes;
    const trim = (): void => one.hear({ kind: 'trim', arena: 1 });
    trim();
    assert.equal(one.arena.residentBytes, used);
    trim();
    assert.equal(one.arena.residentBytes, used - RING_BYTES / 2);
  }
  // A little that was read is not told by itself, and its writer's ring would never be empty.
  assert.equal(other.program.write(100), 100);
  await joined.until('it is read', () => one.program.read(100) === 100);
  assert.ok(other.program.room < RING_BYTES);
  one.hear({ kind: 'trim', arena: 1 });
  await joined.until('the writer knows', () => other.program.room === RING_BYTES);
});
