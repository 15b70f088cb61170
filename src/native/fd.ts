// Descriptors with an owner: eventfd, timerfd, pidfd, and the base class that closes exactly once.

import { MillraceError } from '../errors.ts';
import { addon } from './addon.ts';
import { AGAIN, check, checkAgain } from './result.ts';

/** As many as one call takes. */
const ASIDE_FDS = 256;

/**
 * A descriptor this thread owns. When the thread ends without closing it, also by
 * `worker.terminate()`, the addon does. Its number is good for `Poller.add` and for passing to
 * another process; never keep it longer than this object.
 */
export class Fd implements Disposable {
  #fd: number;

  /** Takes ownership of an open descriptor of the right kind that nobody else closes. */
  static adopt<T extends Fd>(this: new (fd: number) => T, fd: number): T {
    return new this(check(addon.adopt(fd), 'fcntl', `descriptor ${fd}`));
  }

  /**
   * A descriptor of its own of what another thread's descriptor stands for; that thread keeps its
   * own.
   */
  static duplicateOf<T extends Fd>(this: new (fd: number) => T, fd: number): T {
    return new this(check(addon.dup(fd), 'dup', `descriptor ${fd}`));
  }

  static open(path: string, flags: number): Fd {
    return new Fd(check(addon.open(path, flags), 'open', path));
  }

  /** For this module's wrappers: `fd` is owned by the addon already. */
  constructor(fd: number) {
    this.#fd = fd;
  }

  get fd(): number {
    if (this.#fd < 0) throw new MillraceError('MILLRACE_ERR_CLOSED', `this ${this.constructor.name} is closed`);
    return this.#fd;
  }

  get isClosed(): boolean {
    return this.#fd < 0;
  }

  /** Another descriptor of the same kernel object, with a life of its own. */
  duplicate(): Fd {
    return new Fd(check(addon.dup(this.fd), 'dup'));
  }

  /**
   * Gives the descriptor away, to another thread that adopts it or to Node: this object is closed,
   * the descriptor open.
   */
  release(): number {
    const fd = this.fd;
    check(addon.disown(fd), 'disown');
    this.#fd = -1;
    return fd;
  }

  /**
   * Closes descriptors on a thread of their own. The last close of a socket that lingers waits for
   * its peer, and that of a file for its file system: a process that hands over such descriptors
   * must not hold up the thread that got them.
   */
  static closeAside(fds: readonly Fd[]): void {
    const open = fds.filter((fd) => !fd.isClosed);
    const numbers = open.map((fd) => fd.#fd);
    for (const fd of open) fd.#fd = -1;
    // Where no thread can be made, they are closed all the same.
    for (let first = 0; first < numbers.length; first += ASIDE_FDS) {
      addon.closeAside(numbers.slice(first, first + ASIDE_FDS));
    }
  }

  /** How many threads of this process have not closed all of theirs yet. */
  static get closingAside(): number {
    return addon.closingAside();
  }

  close(): void {
    if (this.#fd < 0) return;
    const fd = this.#fd;
    this.#fd = -1;
    // The kernel has let go of the number whatever close() answers, so there is nothing to retry.
    addon.close(fd);
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/** A counter to wait on. */
export class EventFd extends Fd {
  static create(): EventFd {
    return new EventFd(check(addon.eventfd(0), 'eventfd'));
  }

  /**
   * Adds to the counter. A full counter (2^64-2) cannot happen: the waiter is awake long before.
   */
  signal(count = 1): void {
    check(addon.eventWrite(this.fd, count), 'write');
  }

  /** The counter since the last take, which resets it; 0 when it was not signalled. */
  take(): number {
    const count = checkAgain(addon.eventRead(this.fd), 'read');
    return count === AGAIN ? 0 : count;
  }
}

/** A timer to wait on, on the monotonic clock. */
export class TimerFd extends Fd {
  static create(): TimerFd {
    return new TimerFd(check(addon.timerfdCreate(), 'timerfd_create'));
  }

  /** Fires after `firstNs` and then every `intervalNs` (0: once). A `firstNs` of 0 disarms. */
  set(firstNs: number, intervalNs = 0): void {
    check(addon.timerfdSet(this.fd, firstNs, intervalNs), 'timerfd_settime');
  }

  /** How often it fired since the last take. */
  take(): number {
    const expirations = checkAgain(addon.eventRead(this.fd), 'read');
    return expirations === AGAIN ? 0 : expirations;
  }
}

/**
 * A process that cannot be mistaken for a later one with the same number. Readable once the process
 * has ended.
 */
export class PidFd extends Fd {
  static of(pid: number): PidFd {
    return new PidFd(check(addon.pidfdOpen(pid), 'pidfd_open', `process ${pid}`));
  }

  /** Sends a signal by number; 0 only asks whether the process is there. */
  signal(signal: number): void {
    check(addon.pidfdSignal(this.fd, signal), 'pidfd_send_signal');
  }
}
