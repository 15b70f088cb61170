// Calls to the backend: written into the call area, waited for, and read from there; what fails there is thrown here.

import { MillraceError } from '../../errors.ts';
import { monotonicNs, Poller, pollEvents } from '../../native/index.ts';
import type { GuestTransport } from '../../remoting/protocol/index.ts';
import {
  areaWord,
  type CallName,
  calls,
  readError,
  replyStatuses,
  WordReader,
  WordWriter,
} from '../../remoting/protocol/index.ts';
import { AdaptiveWait, type WaitMode } from '../../spin/index.ts';

/** A backend that is alive and does not answer for so long never will. */
const PATIENCE_NS = 30e9;
/** How often one who only looks makes sure that the backend is alive. */
const LOOK_NS = 10_000_000;
/** How long a sleep lasts at most: a transport may not notice every end. */
const NAP_NS = 1e9;

export interface CallerOwner {
  /** The bell was rung while a call was waited for: somebody should look what for. */
  onRung(): void;
  /** The backend is gone. */
  onGone(): void;
}

export class Caller implements Disposable {
  readonly #transport: GuestTransport;
  readonly #owner: CallerOwner;
  readonly #area: Uint32Array;
  readonly #wait: AdaptiveWait;
  readonly #poller = Poller.create(1);
  readonly #writer = new WordWriter();
  readonly #reader = new WordReader();
  #sequence = 0;
  #goneReason: string | undefined;

  constructor(transport: GuestTransport, mode: WaitMode, owner: CallerOwner) {
    this.#transport = transport;
    this.#owner = owner;
    this.#area = new Uint32Array(transport.callArea.buffer);
    this.#wait = new AdaptiveWait(mode);
    this.#poller.add(transport.fd, pollEvents.in, 0);
  }

  get isGone(): boolean {
    return this.#goneReason !== undefined;
  }

  /** Nothing can be asked any more. */
  end(reason: string): void {
    this.#goneReason ??= reason;
  }

  /** The results are good until the next call. */
  call(name: CallName, fill?: (writer: WordWriter) => unknown): WordReader {
    if (this.#goneReason !== undefined) throw this.#gone(name);
    this.#writer.clear();
    fill?.(this.#writer);
    const area = this.#area;
    this.#writer.copyTo(area, areaWord.arguments);
    area[areaWord.argumentCount] = this.#writer.count;
    area[areaWord.callId] = calls[name];
    this.#sequence = (this.#sequence + 1) >>> 0;
    // Partner: the backend's load, which then reads the arguments.
    Atomics.store(area, areaWord.callSequence, this.#sequence);
    this.wakeBackend();
    this.#await(name);
    this.#reader.copyFrom(area, areaWord.results, area[areaWord.resultCount]);
    if (area[areaWord.replyStatus] === replyStatuses.done) return this.#reader;
    throw readError(this.#reader);
  }

  /** For closing: what is gone needs no closing. */
  callIfAlive(name: CallName, fill?: (writer: WordWriter) => unknown): void {
    if (this.#goneReason !== undefined) return;
    try {
      this.call(name, fill);
    } catch (error) {
      if (!this.isGone) throw error;
    }
  }

  /** After something was stored for it. Partner: the backend stores that it sleeps, and then looks once more. */
  wakeBackend(): void {
    const area = this.#area;
    if (Atomics.load(area, areaWord.backendSleeps) === 0) return;
    // Whoever takes the flag back rings.
    if (Atomics.compareExchange(area, areaWord.backendSleeps, 1, 0) === 1) this.#transport.ring();
  }

  /** Whether the bell has rung, or rings within so long. */
  isRung(timeoutNs: number): boolean {
    return this.#poller.wait(timeoutNs) > 0;
  }

  close(): void {
    this.#poller.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #await(name: CallName): void {
    const area = this.#area;
    const startNs = monotonicNs();
    let nowNs = startNs;
    let lookedNs = startNs;
    while (Atomics.load(area, areaWord.replySequence) !== this.#sequence) {
      nowNs = monotonicNs();
      if (nowNs - startNs > PATIENCE_NS) this.#giveUp(name, 'it does not answer');
      if (this.#wait.mayLook(nowNs)) {
        if (nowNs - lookedNs < LOOK_NS) continue;
        lookedNs = nowNs;
        this.#takeDoorbell(name);
        continue;
      }
      // Said first, then looked once more: partner is the backend, which replies and then looks whether somebody waits.
      Atomics.store(area, areaWord.guestWaits, 1);
      if (Atomics.load(area, areaWord.replySequence) === this.#sequence) break;
      if (this.#poller.wait(NAP_NS) > 0) this.#takeDoorbell(name);
    }
    this.#wait.found(nowNs);
    Atomics.store(area, areaWord.guestWaits, 0);
  }

  #takeDoorbell(name: CallName): void {
    if (!this.#transport.take()) this.#giveUp(name, 'it has ended, or ended the connection');
    this.#owner.onRung();
  }

  #giveUp(name: CallName, reason: string): never {
    this.end(reason);
    this.#owner.onGone();
    throw this.#gone(name);
  }

  #gone(name: CallName): MillraceError {
    return new MillraceError('MILLRACE_ERR_BACKEND_GONE', `${name} by the remoting backend: ${this.#goneReason}`);
  }
}
