// Calls to the backend: arguments are written into the call area, results are waited for and read;
// an error of the backend is thrown.

import { MillraceError } from '../../errors.ts';
import { compareExchange, loadAcquire, monotonicNs, Poller, pollEvents, storeRelease } from '../../native/index.ts';
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
import { SpinPolicy, spinNsOf, tunings, type WaitMode } from '../../spin/index.ts';

/** A backend that is alive and has not replied by then never will. */
const MAX_REPLY_NS = 30e9;
/** How often a thread that spins makes sure that the backend is alive. */
const ALIVE_CHECK_NS = 10_000_000;
/** How long a sleep lasts at most: a transport may not tell of every end. */
const NAP_NS = 1e9;

interface CallObserver {
  /**
   * The doorbell was taken while a call waited: the connection must attend to what it was rung for.
   */
  onRung(): void;
  /** The backend is gone. */
  onGone(): void;
}

export class BackendCalls implements Disposable {
  readonly #transport: GuestTransport;
  readonly #owner: CallObserver;
  readonly #area: Uint32Array;
  readonly #spinPolicy: SpinPolicy;
  readonly #poller = Poller.create(1);
  readonly #writer = new WordWriter();
  readonly #reader = new WordReader();
  #sequence = 0;
  #goneReason: string | undefined;

  constructor(transport: GuestTransport, mode: WaitMode, owner: CallObserver) {
    this.#transport = transport;
    this.#owner = owner;
    this.#area = new Uint32Array(transport.callArea.buffer);
    this.#spinPolicy = new SpinPolicy(tunings.guestCall, spinNsOf(mode));
    this.#poller.add(transport.fd, pollEvents.in, 0);
  }

  get isGone(): boolean {
    return this.#goneReason !== undefined;
  }

  /** No call can be made any more. */
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
    // Partner: the loads of `GuestSession`, which then reads the arguments.
    storeRelease(area, areaWord.callSequence, this.#sequence);
    this.wake();
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

  /**
   * Wakes the backend after something was stored for it. Partner: `GuestSession.prepareSleep`,
   * which stores that it sleeps and then loads everything once more.
   */
  wake(): void {
    const area = this.#area;
    if (loadAcquire(area, areaWord.backendSleeps) === 0) return;
    // The side that takes the flag back rings.
    if (compareExchange(area, areaWord.backendSleeps, 1, 0) === 1) this.#transport.ringDoorbell();
  }

  /** Whether the doorbell has been rung, or is within so long. */
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
    let checkedNs = startNs;
    // Partner: the store of `GuestSession.#serveCall`, after it has written the results.
    while (loadAcquire(area, areaWord.replySequence) !== this.#sequence) {
      nowNs = monotonicNs();
      if (nowNs - startNs > MAX_REPLY_NS) this.#giveUp(name, 'it does not reply');
      if (this.#spinPolicy.maySpin(nowNs)) {
        if (nowNs - checkedNs < ALIVE_CHECK_NS) continue;
        checkedNs = nowNs;
        this.#takeDoorbell(name);
        continue;
      }
      // Stores that it waits, then loads once more. Partner: `GuestSession.#serveCall`, which
      // stores the reply and then takes this flag back.
      storeRelease(area, areaWord.guestWaits, 1);
      if (loadAcquire(area, areaWord.replySequence) === this.#sequence) break;
      if (this.#poller.wait(NAP_NS) > 0) this.#takeDoorbell(name);
    }
    this.#spinPolicy.found(nowNs);
    storeRelease(area, areaWord.guestWaits, 0);
  }

  #takeDoorbell(name: CallName): void {
    if (!this.#transport.takeDoorbell()) this.#giveUp(name, 'it has ended, or ended the connection');
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
