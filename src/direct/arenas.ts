// Arenas: memory that two programs share, and the slots in it, one for each of their connections.

import { EventFd, SharedMemory } from '../native/index.ts';
import { arenaBytes, RINGS_OFFSET, ringsOffset, SLOT_BYTES, SLOTS, SLOTS_OFFSET } from './layout.ts';

export type Party = 0 | 1;

export const otherParty = (party: Party): Party => (party === 0 ? 1 : 0);

/** A slot that two programs use for one connection. */
export interface Place {
  readonly arena: Arena;
  readonly slot: number;
}

/** Made by the daemon, which keeps it for the slots that come. It never reads anything there. */
export class Arena implements Disposable {
  /** No other arena of this daemon ever has it. */
  readonly id: number;
  /** The numbers of the two programs; the first is party 0. */
  readonly programs: readonly [number, number];
  readonly ringBytes: number;
  readonly #memory: SharedMemory;
  readonly #doorbells: readonly [EventFd, EventFd];
  readonly #slots: Uint8Array;
  readonly #freeSlots: number[] = Array.from({ length: SLOTS }, (_, index) => SLOTS - 1 - index);

  static create(id: number, programs: readonly [number, number], ringBytes: number): Arena {
    using undo = new DisposableStack();
    const memory = undo.use(
      SharedMemory.create({ sizeBytes: arenaBytes(ringBytes), mappedBytes: RINGS_OFFSET, name: 'direct arena' }),
    );
    memory.seal('size');
    const doorbells = [undo.use(EventFd.create()), undo.use(EventFd.create())] as const;
    undo.move();
    return new Arena(id, programs, ringBytes, memory, doorbells);
  }

  private constructor(
    id: number,
    programs: readonly [number, number],
    ringBytes: number,
    memory: SharedMemory,
    doorbells: readonly [EventFd, EventFd],
  ) {
    this.id = id;
    this.programs = programs;
    this.ringBytes = ringBytes;
    this.#memory = memory;
    this.#doorbells = doorbells;
    this.#slots = new Uint8Array(memory.buffer, SLOTS_OFFSET, SLOTS * SLOT_BYTES);
  }

  get isClosed(): boolean {
    return this.#memory.isClosed;
  }

  partyOf(program: number): Party {
    return this.programs[0] === program ? 0 : 1;
  }

  /** What a party is told of: the memory, the doorbell that it hears, and the other's. */
  fdsFor(party: Party): readonly [number, number, number] {
    return [this.#memory.fd, this.#doorbells[party].fd, this.#doorbells[otherParty(party)].fd];
  }

  /** A slot of zeroes, or undefined when all are in use. */
  take(): number | undefined {
    const slot = this.#freeSlots.pop();
    // Zeroed now and not when it was given back: until here either party could still write there.
    if (slot !== undefined) this.#slots.fill(0, slot * SLOT_BYTES, (slot + 1) * SLOT_BYTES);
    return slot;
  }

  /** Neither party uses the slot any more. */
  giveBack(slot: number): void {
    if (this.isClosed) return;
    this.#freeSlots.push(slot);
    this.#memory.discard(ringsOffset(slot, this.ringBytes), 2 * this.ringBytes);
  }

  /** The programs keep what they have mapped. */
  close(): void {
    this.#memory.close();
    for (const doorbell of this.#doorbells) doorbell.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

interface ArenasOptions {
  /** Of each ring; a power of two. */
  readonly ringBytes: number;
  /** What the rings of all connections may have together. */
  readonly memoryBytes: number;
}

/** The arenas of all pairs of programs. A pair has several when one is full. */
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

  /** Undefined when there is no more memory. Throws when the system refuses what an arena needs. */
  take(one: number, other: number): Place | undefined {
    if (this.#places >= this.#maxPlaces) return undefined;
    const key = keyOf(one, other);
    for (const arena of this.#byPair.get(key) ?? []) {
      const slot = arena.take();
      if (slot !== undefined) return this.#taken(arena, slot);
    }
    const arena = Arena.create(++this.#lastId, [one, other], this.#ringBytes);
    this.#keep(key, arena);
    return this.#taken(arena, arena.take() ?? 0);
  }

  giveBack({ arena, slot }: Place): void {
    this.#places--;
    arena.giveBack(slot);
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
