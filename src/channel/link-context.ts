// What the links of a lane share: its loop, its memory, and the last words of streams that were reset.

import { BufferPool, type EventLoop, LastWords } from '../loop/index.ts';
import { RangeList } from '../native/index.ts';
import { MemoryBudget } from './credits.ts';

/** Small, because each slow stream has at least one. */
const HELD_BUFFER_BYTES = 64 * 1024;

export interface PartsOptions {
  readonly memoryBytes: number;
  readonly recordsPerSend: number;
}

export class LaneParts implements Disposable {
  readonly lane: EventLoop;
  readonly pool = new BufferPool(HELD_BUFFER_BYTES);
  readonly budget: MemoryBudget;
  /** For one gathered send at a time. */
  readonly ranges: RangeList;
  readonly lastWords: LastWords;

  constructor(lane: EventLoop, options: PartsOptions) {
    this.lane = lane;
    this.budget = new MemoryBudget(options.memoryBytes);
    this.ranges = new RangeList(options.recordsPerSend);
    this.lastWords = new LastWords(lane);
  }

  close(): void {
    this.lastWords.close();
    this.pool.close();
    this.ranges.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
