// What the links of a lane share: its loop, its memory, and patience with streams that were reset.

import { BufferPool, type Lane, type Watched } from '../lane/index.ts';
import { pollEvents, RangeList, TimerFd } from '../native/index.ts';
import { MemoryBudget } from './credits.ts';

/** How often a stream that was reset, and still has bytes to deliver, is looked at. */
const LOOK_NS = 5_000_000;
/** Small, because each slow stream has at least one. */
const HELD_BUFFER_BYTES = 64 * 1024;

/** Something that is over, and still has to deliver. */
export interface Dying {
  readonly isClosed: boolean;
  look(): void;
}

export interface PartsOptions {
  readonly memoryBytes: number;
  readonly recordsPerSend: number;
}

export class LaneParts implements Watched, Disposable {
  readonly lane: Lane;
  readonly pool = new BufferPool(HELD_BUFFER_BYTES);
  readonly budget: MemoryBudget;
  /** For one gathered send at a time. */
  readonly ranges: RangeList;
  readonly #dying = new Set<Dying>();
  readonly #timer = TimerFd.create();
  readonly #token: number;

  constructor(lane: Lane, options: PartsOptions) {
    this.lane = lane;
    this.budget = new MemoryBudget(options.memoryBytes);
    this.ranges = new RangeList(options.recordsPerSend);
    this.#token = lane.watch(this.#timer.fd, pollEvents.in, this);
  }

  lookAfter(one: Dying): void {
    if (this.#dying.has(one)) return;
    if (this.#dying.size === 0) this.#timer.set(LOOK_NS, LOOK_NS);
    this.#dying.add(one);
  }

  onEvents(): void {
    this.#timer.take();
    for (const one of this.#dying) {
      one.look();
      if (one.isClosed) this.#dying.delete(one);
    }
    if (this.#dying.size === 0) this.#timer.set(0);
  }

  close(): void {
    if (this.#timer.isClosed) return;
    this.lane.unwatch(this.#timer.fd, this.#token);
    this.#timer.close();
    this.pool.close();
    this.ranges.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
