// Signs of life: each thread of the daemon counts up a word of its own, in memory that all of them
// share.

/** The main thread's number here. Lane n has n + 1. */
export const MAIN_THREAD = 0;

const WORDS_PER_THREAD = 3;
const COUNT = 0;
const THREAD_ID = 1;
const REPORTED = 2;

export class SignsOfLife {
  /** Plain data, for threads. */
  readonly memory: SharedArrayBuffer;
  readonly #words: Int32Array;

  static create(threads: number): SignsOfLife {
    return new SignsOfLife(new SharedArrayBuffer(threads * WORDS_PER_THREAD * Int32Array.BYTES_PER_ELEMENT));
  }

  constructor(memory: SharedArrayBuffer) {
    this.memory = memory;
    this.#words = new Int32Array(memory);
  }

  /** `threadId`: the kernel's number of the thread, which the others look it up by. */
  begin(thread: number, threadId: number): void {
    Atomics.store(this.#words, thread * WORDS_PER_THREAD + THREAD_ID, threadId);
  }

  give(thread: number): void {
    Atomics.add(this.#words, thread * WORDS_PER_THREAD + COUNT, 1);
  }

  /** Another number than before: it has given one meanwhile. */
  count(thread: number): number {
    return Atomics.load(this.#words, thread * WORDS_PER_THREAD + COUNT);
  }

  /**
   * Of all threads that find this one silent, one reports it: true for the first that asks since
   * its last sign.
   */
  isFirstToReport(thread: number): boolean {
    // One more, because all words begin with 0.
    const sign = (this.count(thread) + 1) | 0;
    return Atomics.exchange(this.#words, thread * WORDS_PER_THREAD + REPORTED, sign) !== sign;
  }

  /** The kernel's number of a thread; 0 before it has begun. */
  threadId(thread: number): number {
    return Atomics.load(this.#words, thread * WORDS_PER_THREAD + THREAD_ID);
  }
}
