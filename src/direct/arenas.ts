// Arenas: memory that two programs share, or a program and a lane, and the slots in it, one for
// each connection.

import { EventFd, MemoryFile, Poller, pollEvents } from '../native/index.ts';
import { arenaBytes, RINGS_OFFSET, ringsOffset, SLOT_BYTES, SLOTS, SLOTS_OFFSET } from './layout.ts';

const zeroes = new Uint8Array(SLOT_BYTES);

export type Party = 0 | 1;

export const otherParty = (party: Party): Party => (party === 0 ? 1 : 0);

/** The number of a lane among the parties; programs have numbers from 1 on. */
export const partyOfLane = (lane: number): number => -1 - lane;

/** A slot that two parties use for one connection. */
export interface Place {
  readonly arena: Arena;
  readonly slot: number;
}

/**
 * Made by the daemon, which keeps it for the slots that come. It never reads anything there, and
 * does not map it: either party can take pages away, and a store there could then fail.
 */
export class Arena implements Disposable {
  /** No other arena of this daemon ever has it. */
  readonly id: number;
  /** The numbers of the two programs, or of a program and a lane; the first is party 0. */
  readonly programs: readonly [number, number];
  readonly ringBytes: number;
  readonly #memory: MemoryFile;
  readonly #doorbells: readonly [EventFd, EventFd];
  readonly #ear: Poller | null;
  readonly #freeSlots: number[] = Array.from({ length: SLOTS }, (_, index) => SLOTS - 1 - index);

  static create(id: number, programs: readonly [number, number], ringBytes: number): Arena {
    using undo = new DisposableStack();
    const memory = undo.use(MemoryFile.create(arenaBytes(ringBytes), 'direct arena'));
    memory.seal('size');
    const doorbells = [undo.use(EventFd.create()), undo.use(EventFd.create())] as const;
    const ear = undo.use(programs[1] < 0 ? earOf(doorbells[0]) : null);
    undo.move();
    return new Arena(id, programs, ringBytes, memory, doorbells, ear);
  }

  private constructor(
    id: number,
    programs: readonly [number, number],
    ringBytes: number,
    memory: MemoryFile,
    doorbells: readonly [EventFd, EventFd],
    ear: Poller | null,
  ) {
    this.id = id;
    this.programs = programs;
    this.ringBytes = ringBytes;
    this.#memory = memory;
    this.#doorbells = doorbells;
    this.#ear = ear;
  }

  get isClosed(): boolean {
    return this.#memory.isClosed;
  }

  /** The other party is a lane. */
  get isWithLane(): boolean {
    return this.programs[1] < 0;
  }

  partyOf(program: number): Party {
    return this.programs[0] === program ? 0 : 1;
  }

  /** What a party is told of: the memory, the doorbell that it hears, and the other's. */
  fdsFor(party: Party): readonly [number, number, number] {
    const own = party === 0 && this.#ear !== null ? this.#ear : this.#doorbells[party];
    return [this.#memory.fd, own.fd, this.#doorbells[otherParty(party)].fd];
  }

  /**
   * A slot of zeroes, or undefined when all are in use. Throws when the system has no memory for
   * it.
   */
  take(): number | undefined {
    const slot = this.#freeSlots.at(-1);
    if (slot === undefined) return undefined;
    // Zeroed now and not when it was given back: until here either party could still write there.
    this.#memory.write(SLOTS_OFFSET + slot * SLOT_BYTES, zeroes);
    this.#freeSlots.pop();
    return slot;
  }

  /** Neither party uses the slot any more. */
  giveBack(slot: number): void {
    if (this.isClosed) return;
    this.#freeSlots.push(slot);
    try {
      this.#memory.discard(ringsOffset(slot, this.ringBytes), 2 * this.ringBytes);
    } catch {
      // Its pages stay until the slot is used again, or the arena ends.
    }
  }

  /** Rings have pages, whether or not there are bytes in them. */
  get hasRingPages(): boolean {
    return !this.isClosed && this.#memory.residentBytes > RINGS_OFFSET;
  }

  /** The programs keep what they have mapped. */
  close(): void {
    this.#memory.close();
    for (const doorbell of this.#doorbells) doorbell.close();
    this.#ear?.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/**
 * What a program hears its lane by: it never gets the eventfd that the lane writes, because whoever
 * has one can fill it and make a write wait.
 */
function earOf(doorbell: EventFd): Poller {
  using undo = new DisposableStack();
  const poller = undo.use(Poller.create(1));
  poller.add(doorbell.fd, pollEvents.in, 0);
  undo.move();
  return poller;
}

interface ArenasOptions {
  /** Of each ring; a power of two. */
  readonly ringBytes: number;
  /** What the rings of all connections may have together. */
  readonly memoryBytes: number;
}

/** The arenas of all pairs of programs or lanes. A pair has several when one is full. */
export class Arenas implements Disposable {
  readonly #ringBytes: number;
  readonly #maxPlaces: number;
  readonly #byPair = new Map<string, Arena[]>();
  readonly #byProgram = new Map<number, Set<string>>();
  #lastId = 0;
  #places = 0;

  constructor({ ringBytes, memoryBytes }: ArenasOptions) {
    this.#ringBytes = ringBytes;
    this.#maxPlaces = Math.floor(memoryBytes / (2 * ringBytes));
  }

  /** Connections that have a slot. */
  get places(): number {
    return this.#places;
  }

  /**
   * The lane, if one of them is, comes second. Undefined when there is no more memory. Throws when
   * the system refuses what an arena needs.
   */
  take(one: number, other: number): Place | undefined {
    if (this.#places >= this.#maxPlaces) return undefined;
    const key = keyOf(one, other);
    for (const arena of this.#byPair.get(key) ?? []) {
      const slot = arena.take();
      if (slot !== undefined) return this.#taken(arena, slot);
    }
    using undo = new DisposableStack();
    const arena = undo.use(Arena.create(++this.#lastId, [one, other], this.#ringBytes));
    const slot = arena.take() ?? 0;
    undo.move();
    this.#keep(key, arena);
    return this.#taken(arena, slot);
  }

  giveBack({ arena, slot }: Place): void {
    this.#places--;
    arena.giveBack(slot);
  }

  /** Those whose parties may give pages of idle rings back. */
  get withRingPages(): readonly Arena[] {
    return Array.from(this.#byPair.values()).flatMap((arenas) => arenas.filter(({ hasRingPages }) => hasRingPages));
  }

  /** Closes all arenas of a program. The answer tells them. */
  closeOf(program: number): readonly Arena[] {
    const closed: Arena[] = [];
    for (const key of this.#byProgram.get(program) ?? []) {
      for (const arena of this.#byPair.get(key) ?? []) {
        arena.close();
        closed.push(arena);
        for (const party of arena.programs) if (party !== program) this.#byProgram.get(party)?.delete(key);
      }
      this.#byPair.delete(key);
    }
    this.#byProgram.delete(program);
    return closed;
  }

  close(): void {
    for (const arena of [...this.#byPair.values()].flat()) arena.close();
    this.#byPair.clear();
    this.#byProgram.clear();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #taken(arena: Arena, slot: number): Place {
    this.#places++;
    return { arena, slot };
  }

  #keep(key: string, arena: Arena): void {
    const arenas = this.#byPair.get(key);
    if (arenas === undefined) this.#byPair.set(key, [arena]);
    else arenas.push(arena);
    for (const program of arena.programs) {
      const keys = this.#byProgram.get(program);
      if (keys === undefined) this.#byProgram.set(program, new Set([key]));
      else keys.add(key);
    }
  }
}

function keyOf(one: number, other: number): string {
  return one < other ? `${one} ${other}` : `${other} ${one}`;
}
