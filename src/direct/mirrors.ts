// The slots that programs share with lanes. A slot is free again when both its program and its lane
// have left it.

import { Fd } from '../native/index.ts';
import type { MirrorOrder } from './arena/index.ts';
import { type Arena, type Arenas, type Place, partyOfLane } from './arenas.ts';
import type { MirrorLanes } from './mesh.ts';

interface SharedArena {
  readonly lane: number;
  /** Those that the lane may touch. */
  readonly places: Map<number, Place>;
  isEnded: boolean;
}

type MirrorSpec = Pick<Extract<MirrorOrder, { readonly kind: 'mirror' }>, 'peer' | 'link' | 'key' | 'isOpener'>;

export class Mirrors {
  readonly #arenas: Arenas;
  readonly #lanes: MirrorLanes;
  readonly #shared = new Map<number, SharedArena>();

  constructor(arenas: Arenas, lanes: MirrorLanes) {
    this.#arenas = arenas;
    this.#lanes = lanes;
  }

  /**
   * The lane of the link mirrors it from now on. Undefined when there is no memory or descriptor
   * left for it.
   */
  take(program: number, spec: MirrorSpec): Place | undefined {
    const lane = this.#lanes.laneOf(spec.link);
    const place = this.#place(program, lane);
    if (place === undefined) return undefined;
    const { arena, slot } = place;
    this.#shared.get(arena.id)?.places.set(slot, place);
    this.#lanes.tell(lane, { kind: 'mirror', arena: arena.id, slot, ...spec });
    return place;
  }

  /** `isEnded`: the program has ended without leaving it. */
  leave({ arena, slot }: Place, isEnded: boolean): void {
    const shared = this.#shared.get(arena.id);
    if (shared !== undefined) this.#lanes.tell(shared.lane, { kind: 'unmirror', arena: arena.id, slot, isEnded });
  }

  /** Its idle rings give their pages back. */
  trim({ id }: Arena): void {
    const shared = this.#shared.get(id);
    if (shared !== undefined) this.#lanes.tell(shared.lane, { kind: 'trim', arena: id });
  }

  /** All programs go back to TCP. What those that have ended had written is still sent. */
  leaveAll(): void {
    this.#lanes.tellAll({ kind: 'unmirrorAll' });
  }

  /** The lane does not touch it any more, which it says of each slot that was left. */
  unmirrored(arena: number, slot: number): void {
    const shared = this.#shared.get(arena);
    const place = shared?.places.get(slot);
    if (shared === undefined || place === undefined) return;
    shared.places.delete(slot);
    this.#arenas.giveBack(place);
    this.#letGo(arena, shared);
  }

  /** Its program has ended, and has left all slots. The lane has descriptors of its own. */
  ended({ id }: Arena): void {
    const shared = this.#shared.get(id);
    if (shared === undefined) return;
    shared.isEnded = true;
    this.#letGo(id, shared);
  }

  #letGo(arena: number, { lane, places, isEnded }: SharedArena): void {
    if (!isEnded || places.size > 0) return;
    this.#shared.delete(arena);
    this.#lanes.tell(lane, { kind: 'arenaGone', arena });
  }

  #place(program: number, lane: number): Place | undefined {
    using undo = new DisposableStack();
    try {
      const place = this.#arenas.take(program, partyOfLane(lane));
      if (place === undefined) return undefined;
      undo.defer(() => this.#arenas.giveBack(place));
      if (!this.#shared.has(place.arena.id)) this.#introduce(place.arena, lane);
      undo.move();
      return place;
    } catch {
      // The system is out of memory or descriptors.
      return undefined;
    }
  }

  #introduce(arena: Arena, lane: number): void {
    using undo = new DisposableStack();
    const fds = arena.fdsFor(1).map((fd) => undo.use(Fd.duplicateOf(fd)));
    const [memoryFd = -1, doorbellFd = -1, programDoorbellFd = -1] = fds.map((fd) => fd.release());
    const { id, ringBytes } = arena;
    this.#shared.set(id, { lane, places: new Map(), isEnded: false });
    this.#lanes.tell(lane, { kind: 'arena', arena: id, ringBytes, memoryFd, doorbellFd, programDoorbellFd });
  }
}
