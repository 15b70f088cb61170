// epoll for lanes: one call fills a batch, which is read by index from a typed array. Nothing is
// allocated per event.

import { constants } from 'node:os';
import { UsageError } from '../errors.ts';
import { addon } from './addon.ts';
import { Fd } from './fd.ts';
import { SharedMemory } from './memory.ts';
import { check } from './result.ts';

/** <sys/epoll.h> */
export const pollEvents = {
  in: 0x1,
  urgent: 0x2,
  out: 0x4,
  error: 0x8,
  hangup: 0x10,
  peerClosed: 0x2000,
  exclusive: 0x1000_0000,
  oneShot: 0x4000_0000,
  edge: 0x8000_0000,
} as const;

const EPOLL_CTL_ADD = 1;
const EPOLL_CTL_DEL = 2;
const EPOLL_CTL_MOD = 3;
const { EINTR } = constants.errno;

// struct epoll_event in 32-bit words: events, then the token in the low half of `data`. Packed on
// x86-64 (3 words), padded elsewhere (4), where `data` starts at word 2.
const wordsPerEvent = addon.epollEventBytes / 4;
const tokenWord = wordsPerEvent === 3 ? 1 : 2;

export class Poller implements Disposable {
  readonly #epoll: Fd;
  readonly #memory: SharedMemory;
  readonly #words: Uint32Array;
  readonly capacity: number;

  static create(capacity = 64): Poller {
    return new Poller(capacity);
  }

  private constructor(capacity: number) {
    if (!Number.isInteger(capacity) || capacity < 1 || capacity > 65536) {
      throw new UsageError(`a poller for ${capacity} events: expected 1 to 65536`);
    }
    using undo = new DisposableStack();
    this.#memory = undo.use(SharedMemory.create({ sizeBytes: capacity * addon.epollEventBytes, name: 'epoll' }));
    this.#epoll = undo.use(new Fd(check(addon.epollCreate(), 'epoll_create1')));
    this.#words = new Uint32Array(this.#memory.buffer);
    this.capacity = capacity;
    undo.move();
  }

  /** The poller itself can be waited on: it is readable while it has events. */
  get fd(): number {
    return this.#epoll.fd;
  }

  /** `token` (32 bits) comes back with each event of `fd`. */
  add(fd: number, events: number, token: number): void {
    check(addon.epollCtl(this.#epoll.fd, EPOLL_CTL_ADD, fd, events, token), 'epoll_ctl', `add descriptor ${fd}`);
  }

  change(fd: number, events: number, token: number): void {
    check(addon.epollCtl(this.#epoll.fd, EPOLL_CTL_MOD, fd, events, token), 'epoll_ctl', `change descriptor ${fd}`);
  }

  /**
   * Before closing: a closed descriptor leaves by itself only when it was the last one of its
   * kernel object.
   */
  remove(fd: number): void {
    check(addon.epollCtl(this.#epoll.fd, EPOLL_CTL_DEL, fd, 0, 0), 'epoll_ctl', `remove descriptor ${fd}`);
  }

  /**
   * Blocks this thread until something is ready; returns how many events the batch holds. Negative:
   * for ever.
   */
  wait(timeoutNs: number): number {
    const count = addon.epollWait(this.#epoll.fd, this.#memory.id, this.capacity, timeoutNs);
    if (count === -EINTR) return 0;
    return check(count, 'epoll_wait');
  }

  /** Token of event `index` of the last batch. */
  token(index: number): number {
    return this.#words[index * wordsPerEvent + tokenWord];
  }

  /** Events of event `index` of the last batch. */
  events(index: number): number {
    return this.#words[index * wordsPerEvent];
  }

  close(): void {
    this.#epoll.close();
    this.#memory.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
