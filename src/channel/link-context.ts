// What the links of a lane share: the event loop, the memory for held bytes, and the drain of reset
// streams.

import { BufferPool, type EventLoop, ResetDrain } from '../loop/index.ts';
import { RangeList } from '../native/index.ts';
import { MemoryBudget } from './credits.ts';

/** Small, because each slow stream has at least one. */
const HELD_BUFFER_BYTES = 64 * 1024;

interface LinkContextOptions {
  readonly memoryBytes: number;
  readonly recordsPerSend: number;
}

export class LinkContext implements Disposable {
  readonly loop: EventLoop;
  readonly pool = new BufferPool(HELD_BUFFER_BYTES);
  readonly budget: MemoryBudget;
  /** For one gathered send at a time. */
  readonly ranges: RangeList;
  readonly resetDrain: ResetDrain;

  constructor(loop: EventLoop, options: LinkContextOptions) {
    this.loop = loop;
    this.budget = new MemoryBudget(options.memoryBytes);
    this.ranges = new RangeList(options.recordsPerSend);
    this.resetDrain = new ResetDrain(loop);
  }

  close(): void {
    this.resetDrain.close();
    this.pool.close();
    this.ranges.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
