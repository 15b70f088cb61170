// Which queue of a guest a native completion belongs to: the upper word of the native work request
// id.
//
// The device does not see the guest's work request ids: a native id is the queue's tag and the
// request's place in the queue. So the guest's own ids never leave the backend, and nothing has to
// be looked up by QP number.

import { MillraceError } from '../../../errors.ts';
import type { GuestRequestQueue } from './guest-request-queue.ts';

const INDEX_BITS = 13;
const MAX_QUEUES = 1 << INDEX_BITS;
/** Ids have 53 bits: 21 in the upper word. */
const GENERATIONS = 1 << (21 - INDEX_BITS);

export class TagTable {
  readonly #queues: (GuestRequestQueue | undefined)[] = [];
  readonly #generations: number[] = [];
  readonly #free: number[] = [];

  /** `make` gets the tag. */
  add<Q extends GuestRequestQueue>(make: (tag: number) => Q): Q {
    const index = this.#free.pop() ?? this.#queues.length;
    if (index >= MAX_QUEUES) {
      throw new MillraceError('MILLRACE_ERR_QUOTA', `a guest has at most ${MAX_QUEUES} queues`);
    }
    const generation = ((this.#generations[index] ?? 0) + 1) % GENERATIONS;
    this.#generations[index] = generation;
    const queue = make(generation * MAX_QUEUES + index);
    this.#queues[index] = queue;
    return queue;
  }

  /** Undefined when that queue was closed. */
  find(tag: number): GuestRequestQueue | undefined {
    const queue = this.#queues[tag & (MAX_QUEUES - 1)];
    return queue?.tag === tag ? queue : undefined;
  }

  remove(queue: GuestRequestQueue): void {
    const index = queue.tag & (MAX_QUEUES - 1);
    if (this.#queues[index] !== queue) return;
    this.#queues[index] = undefined;
    this.#free.push(index);
  }
}
