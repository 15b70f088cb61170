// Serves one guest: its calls, what it posts, and its completions, turn by turn.

import { MillraceError } from '../../../errors.ts';
import { exchange, fetchAdd, loadAcquire, storeRelease } from '../../../native/index.ts';
import type { SessionCounts } from '../../../status/index.ts';
import type { HostTransport } from '../../protocol/index.ts';
import {
  areaWord,
  PROTOCOL_MAGIC,
  PROTOCOL_VERSION,
  replyStatuses,
  WordReader,
  WordWriter,
  writeError,
} from '../../protocol/index.ts';
import { callHandlers } from '../calls/call-table.ts';
import { GuestState, type GuestStateOptions } from './guest-state.ts';

type GuestSessionOptions = Omit<GuestStateOptions, 'counts' | 'onEvent' | 'onCompletions' | 'onNap'>;

/** Words of shared memory that `spin` loads, about. */
const SPIN_LOADS = 24;

export class GuestSession implements Disposable {
  readonly guest: GuestState;
  readonly counts: SessionCounts = {
    calls: 0,
    failedCalls: 0,
    posted: 0,
    completions: 0,
    failedCompletions: 0,
    events: 0,
    doorbells: 0,
  };
  readonly #transport: HostTransport;
  readonly #area: Uint32Array;
  readonly #args = new WordReader();
  readonly #results = new WordWriter();
  #calls = 0;

  /** Takes the transport over. */
  constructor(options: GuestSessionOptions) {
    this.#transport = options.transport;
    const { memory, offset, sizeBytes } = this.#transport.callArea;
    this.#area = new Uint32Array(memory.buffer, offset, sizeBytes / 4);
    this.#area[areaWord.version] = PROTOCOL_VERSION;
    this.#area[areaWord.magic] = PROTOCOL_MAGIC;
    this.guest = new GuestState({
      ...options,
      counts: this.counts,
      onEvent: () => this.#announceEvent(),
      onCompletions: () => this.#ringForEvent(),
      onNap: () => this.#ring(),
    });
  }

  /**
   * Serves a call, takes posted requests, moves completions; returns how many. Throws on a protocol
   * error: then the guest is to be dropped.
   */
  turn(): number {
    let done = 0;
    if (this.#hasCall) {
      this.#serveCall();
      done++;
    }
    return done + this.#pumpQueues() + this.#pumpCompletions();
  }

  /**
   * Spins for a moment until the guest has called or posted: that loads memory only, where a turn
   * polls the devices as well.
   */
  spin(): boolean {
    const { sendQueues, receiveQueues } = this.guest;
    for (let times = Math.ceil(SPIN_LOADS / (sendQueues.length + receiveQueues.length + 1)); times > 0; times--) {
      if (this.#hasCall || this.#hasPosts) return true;
      // The guest may have the other half of this very core.
      Atomics.pause();
    }
    return false;
  }

  /**
   * Asks devices and guest to wake this thread from now on. False when there is something to do
   * already.
   */
  prepareSleep(): boolean {
    for (const { channel } of this.guest.devices) channel.take();
    // Stores that it sleeps, then loads everything once more. Partner: `BackendCalls.wake`, which
    // runs after a call or a request was stored, and loads this word.
    storeRelease(this.#area, areaWord.backendSleeps, 1);
    let isQuiet = !this.#hasCall && !this.#hasPosts;
    if (isQuiet) {
      for (const queue of this.guest.completionQueues) isQuiet = !queue.prepareSleep() && isQuiet;
    }
    if (!isQuiet) this.awake();
    return isQuiet;
  }

  awake(): void {
    // Partner: `BackendCalls.wake`, which rings only if it takes the flag back itself.
    storeRelease(this.#area, areaWord.backendSleeps, 0);
  }

  close(): void {
    this.guest.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  get #hasCall(): boolean {
    // Partner: the store of `BackendCalls.call`.
    return loadAcquire(this.#area, areaWord.callSequence) !== this.#calls;
  }

  get #hasPosts(): boolean {
    const { sendQueues, receiveQueues } = this.guest;
    for (let index = 0; index < sendQueues.length; index++) if (sendQueues[index].hasWork) return true;
    for (let index = 0; index < receiveQueues.length; index++) if (receiveQueues[index].hasWork) return true;
    return false;
  }

  #pumpQueues(): number {
    const { sendQueues, receiveQueues } = this.guest;
    let done = 0;
    // A receive that was posted before a send must be there when the peer answers: so first the
    // counts of the send rings are read, then receives are taken, then the sends that were counted.
    // Partner: the frontend stores them one after the other.
    for (let index = 0; index < sendQueues.length; index++) sendQueues[index].readProduced();
    for (let index = 0; index < receiveQueues.length; index++) done += receiveQueues[index].pump();
    for (let index = 0; index < sendQueues.length; index++) done += sendQueues[index].pump();
    this.counts.posted += done;
    return done;
  }

  #pumpCompletions(): number {
    const queues = this.guest.completionQueues;
    let done = 0;
    for (let index = 0; index < queues.length; index++) done += queues[index].pump();
    return done;
  }

  #serveCall(): void {
    const area = this.#area;
    // Partner: the store of `BackendCalls.call`, after it has written the arguments.
    const sequence = loadAcquire(area, areaWord.callSequence);
    // Requests that were posted before the call are taken before it is carried out.
    this.#pumpQueues();
    this.#calls = sequence;
    this.counts.calls++;
    let status: number = replyStatuses.done;
    this.#results.clear();
    try {
      this.#args.copyFrom(area, areaWord.arguments, area[areaWord.argumentCount]);
      const id = area[areaWord.callId];
      const handler = callHandlers.get(id);
      if (handler === undefined) {
        throw new MillraceError('MILLRACE_ERR_UNSUPPORTED', `remoting call ${id}: this backend does not know it`);
      }
      handler(this.guest, this.#args, this.#results);
    } catch (error) {
      this.counts.failedCalls++;
      status = replyStatuses.failed;
      writeError(this.#results, error);
    }
    // Completions that the call caused are in the guest's rings when it returns.
    this.#pumpCompletions();
    this.#results.copyTo(area, areaWord.results);
    area[areaWord.resultCount] = this.#results.count;
    area[areaWord.replyStatus] = status;
    // Partner: `BackendCalls.#await`, which stores that it waits and then loads the reply's
    // sequence.
    storeRelease(area, areaWord.replySequence, sequence);
    if (exchange(area, areaWord.guestWaits, 0) === 1) this.#ring();
  }

  #announceEvent(): void {
    this.counts.events++;
    // Partner: the load of `RemoteConnection.attend`.
    fetchAdd(this.#area, areaWord.eventCount, 1);
    this.#ringForEvent();
  }

  /**
   * Rings once until the guest has attended to it. Partner: `RemoteConnection.attend`, which clears
   * the word before it checks its queues.
   */
  #ringForEvent(): void {
    if (exchange(this.#area, areaWord.guestRung, 1) === 0) this.#ring();
  }

  #ring(): void {
    this.counts.doorbells++;
    this.#transport.ringDoorbell();
  }
}
