// The arenas that a lane has mapped, and the slots in them that it mirrors to peers.

import { type DirectStream, MirroredSlot, type Session } from '../channel/index.ts';
import { arenaBytes, MappedArena, type MirrorOrder, RINGS_OFFSET } from '../direct/arena/index.ts';
import type { EventLoop, Watched } from '../loop/index.ts';
import { EventFd, Fd, pollEvents, SharedMemory } from '../native/index.ts';
import type { FromLane } from './messages.ts';

type ArenaMessage = Extract<MirrorOrder, { kind: 'arena' }>;
type MirrorMessage = Extract<MirrorOrder, { kind: 'mirror' }>;
type UnmirrorMessage = Extract<MirrorOrder, { kind: 'unmirror' }>;

interface MirrorsOptions {
  readonly loop: Pick<EventLoop, 'watch' | 'unwatch'>;
  readonly sessionOf: (peer: string, link: number) => Pick<Session, 'mirror'> | undefined;
  readonly tell: (message: FromLane) => void;
}

/** All arenas are looked at in each turn: that the lane was woken is enough. */
const rung: Watched = { onEvents: () => {} };

class LaneArena {
  readonly mapped: MappedArena;
  /** By slot. */
  readonly streams = new Map<number, DirectStream>();
  readonly token: number;

  constructor(mapped: MappedArena, token: number) {
    this.mapped = mapped;
    this.token = token;
  }
}

export class Mirrors implements Disposable {
  readonly #options: MirrorsOptions;
  readonly #arenas = new Map<number, LaneArena>();
  /** All of them, in one list for the loop. */
  #mapped: MappedArena[] = [];

  constructor(options: MirrorsOptions) {
    this.#options = options;
  }

  hear(message: MirrorOrder): void {
    switch (message.kind) {
      case 'arena':
        this.#map(message);
        break;
      case 'mirror':
        this.#mirror(message);
        break;
      case 'unmirror':
        this.#unmirror(message);
        break;
      case 'trim':
        this.#trim(message.arena);
        break;
      case 'unmirrorAll':
        this.#unmirrorAll();
        break;
      default:
        this.#close(message.arena);
    }
  }

  // For the loop of the lane

  /** Handles what programs have rung for. Returns how many slots that were. */
  collect(): number {
    const mapped = this.#mapped;
    let count = 0;
    for (let index = 0; index < mapped.length; index++) count += mapped[index].collect();
    return count;
  }

  /** Tells programs of what was changed in this turn. */
  ring(): void {
    const mapped = this.#mapped;
    for (let index = 0; index < mapped.length; index++) mapped[index].ring();
  }

  /** True when the lane may block: programs that change something wake it. */
  prepareSleep(): boolean {
    const mapped = this.#mapped;
    let mayBlock = true;
    for (let index = 0; index < mapped.length; index++) mayBlock = mapped[index].prepareSleep() && mayBlock;
    return mayBlock;
  }

  close(): void {
    for (const id of this.#arenas.keys()) this.#close(id);
  }

  [Symbol.dispose](): void {
    this.close();
  }

  // Messages of the main thread

  #map({ arena, ringBytes, memoryFd, doorbellFd, programDoorbellFd }: ArenaMessage): void {
    const { loop, tell } = this.#options;
    using undo = new DisposableStack();
    try {
      // All three first, so that all are closed whatever fails.
      const file = undo.use(Fd.adopt(memoryFd));
      const own = undo.use(EventFd.adopt(doorbellFd));
      const other = undo.use(EventFd.adopt(programDoorbellFd));
      // Its words: the bytes of its rings are only copied.
      const sizes = { sizeBytes: arenaBytes(ringBytes), viewBytes: RINGS_OFFSET };
      const memory = undo.use(SharedMemory.open(file, sizes));
      const mapped = new MappedArena(memory, ringBytes, 1, { own, other });
      const token = loop.watch(mapped.doorbellFd, pollEvents.in | pollEvents.edge, rung);
      this.#arenas.set(arena, new LaneArena(mapped, token));
    } catch (error) {
      // Nobody sees what programs write there: their connections stay plain TCP.
      tell({ kind: 'error', message: `map an arena: ${error instanceof Error ? error.message : String(error)}` });
      return;
    }
    undo.move();
    this.#list();
  }

  #mirror({ arena, slot, peer, link, key, isOpener }: MirrorMessage): void {
    const known = this.#arenas.get(arena);
    if (known === undefined) return;
    const mirrored = new MirroredSlot(known.mapped, slot);
    const stream = this.#options.sessionOf(peer, link)?.mirror(key, mirrored, isOpener);
    if (stream === undefined) {
      mirrored.lose();
      return;
    }
    known.streams.set(slot, stream);
    known.mapped.use(slot, stream);
  }

  #unmirror({ arena, slot, isEnded }: UnmirrorMessage): void {
    const known = this.#arenas.get(arena);
    const stream = known?.streams.get(slot);
    const done = (): void => {
      known?.streams.delete(slot);
      known?.mapped.leave(slot);
      this.#options.tell({ kind: 'unmirrored', arena, slot });
    };
    if (stream === undefined) done();
    else stream.unmirror(isEnded, done);
  }

  #trim(arena: number): void {
    for (const stream of this.#arenas.get(arena)?.streams.values() ?? []) stream.trim();
  }

  #unmirrorAll(): void {
    for (const { streams } of this.#arenas.values()) {
      for (const stream of streams.values()) if (!stream.isEnding) stream.lose();
    }
  }

  #close(id: number): void {
    const known = this.#arenas.get(id);
    if (known === undefined) return;
    this.#arenas.delete(id);
    for (const stream of known.streams.values()) stream.lose();
    known.mapped.ring();
    this.#options.loop.unwatch(known.mapped.doorbellFd, known.token);
    known.mapped.close();
    this.#list();
  }

  #list(): void {
    this.#mapped = Array.from(this.#arenas.values(), ({ mapped }) => mapped);
  }
}
