// How many descriptors this process has left, known to all of its threads: whoever gets one notes
// its number, and work that can be left to others stops before the last ones are used.
//
// The kernel gives the lowest number that is free, so a new descriptor n says that at least n
// others are open. Nothing has to be counted.

import { Fd } from '../native/index.ts';
import { type Marks, marksOf } from './marks.ts';
import { maxDescriptors } from './process-limits.ts';

const STDIN = 0;
const LIMIT = 0;
const SHORT = 1;
const WORDS = 2;

export class Descriptors {
  readonly marks: Marks;
  /** Plain data, for threads. */
  readonly memory: SharedArrayBuffer;
  readonly #words: Int32Array;

  /** `limit`: of open files; default: this process's. */
  static create(limit = maxDescriptors()): Descriptors {
    const memory = new SharedArrayBuffer(WORDS * Int32Array.BYTES_PER_ELEMENT);
    new Int32Array(memory)[LIMIT] = limit;
    return new Descriptors(memory);
  }

  constructor(memory: SharedArrayBuffer) {
    this.memory = memory;
    this.#words = new Int32Array(memory);
    this.marks = marksOf(this.#words[LIMIT]);
  }

  /** Few are left: nobody takes more work that somebody else can do. */
  get isShort(): boolean {
    return Atomics.load(this.#words, SHORT) !== 0;
  }

  /** A thread got this one. False when it is of the reserve, and is to be closed again. */
  note(fd: number): boolean {
    if (fd >= this.marks.short) Atomics.store(this.#words, SHORT, 1);
    return fd < this.marks.refuse;
  }

  /** The system had none to give, or no memory. */
  noteShortage(): void {
    Atomics.store(this.#words, SHORT, 1);
  }

  /** Looks how many are in use, at least: the lowest number that is free. It may end a shortage. */
  look(): number {
    const used = lowestFree() ?? this.marks.limit;
    if (used >= this.marks.short) Atomics.store(this.#words, SHORT, 1);
    else if (used < this.marks.enough) Atomics.store(this.#words, SHORT, 0);
    return used;
  }
}

function lowestFree(): number | undefined {
  try {
    using probe = Fd.duplicateOf(STDIN);
    return probe.fd;
  } catch {
    return undefined;
  }
}
