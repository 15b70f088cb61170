// Serves one guest: its calls, what it posts, and its completions, turn by turn.

import { MillraceError } from '../../errors.ts';
import type { SessionCounts } from '../../status/index.ts';
import type { HostTransport } from '../protocol/index.ts';
import {
  areaWord,
  PROTOCOL_MAGIC,
  PROTOCOL_VERSION,
  replyStatuses,
  WordReader,
  WordWriter,
  writeError,
} from '../protocol/index.ts';
import { callHandlers } from './guest-calls.ts';
import { GuestState, type GuestStateOptions } from './guest-state.ts';

export type GuestSessionOptions = Omit<GuestStateOptions, 'onEvent' | 'onCompletions' | 'onNap'>;

/** Words looked at between two turns. */
const GLANCES = 24;

export class GuestSession implements Disposable {
  readonly guest: GuestState;
  readonly counts: SessionCounts = {
    calls: 0,
    failedCalls: 0,
    posted: 0,
    completions: 0,
    failedCompletions: 0,
    events: 0,
    rings: 0,
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
      onEvent: () => this.#announceEvent(),
      onCompletions: () => this.#ringForEvent(),
      onNap: () => this.#ring(),
    });
  }

  /** Does what is there to do; returns how much it was. Throws when the guest has broken the rules: it is to be dropped. */
  turn(): number {
    let done = 0;
    if (this.#hasCall) {
      this.#serveCall();
      done++;
    }
    return done + this.#pumpQueues() + this.#pumpCompletions();
  }

  /** Looks for a while for something from the guest: that takes memory only, where a turn asks the devices as well. */
  glance(): boolean {
    const { sends, receives } = this.guest;
    for (let times = Math.ceil(GLANCES / (sends.length + receives.length + 1)); times > 0; times--) {
      if (this.#hasCall || this.#hasPosts) return true;
      // The guest may have the other half of this very core.
      Atomics.pause();
    }
    return false;
  }

  /**
   * Asks devices and guest to wake this thread from now on. False when there is something to do already.
   */
  prepareSleep(): boolean {
    for (const { channel } of this.guest.devices) channel.take();
    // Partner: the frontend, which stores what it has for us and then looks at this word.
    Atomics.store(this.#area, areaWord.backendSleeps, 1);
    let isQuiet = !this.#hasCall && !this.#hasPosts;
    if (isQuiet) {
      for (const side of this.guest.completionSides) isQuiet = !side.prepareSleep() && isQuiet;
    }
    if (!isQuiet) this.awake();
    return isQuiet;
  }

  awake(): void {
    Atomics.store(this.#area, areaWord.backendSleeps, 0);
  }

  close(): void {
    this.guest.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  get #hasCall(): boolean {
    return Atomics.load(this.#area, areaWord.callSequence) !== this.#calls;
  }

  get #hasPosts(): boolean {
    const { sends, receives } = this.guest;
    for (let index = 0; index < sends.length; index++) if (sends[index].hasWork) return true;
    for (let index = 0; index < receives.length; index++) if (receives[index].hasWork) return true;
    return false;
  }

  #pumpQueues(): number {
    const { sends, receives } = this.guest;
    let done = 0;
    // A receive that was posted before a send is there when the answer comes: sends are looked at, then receives are taken, then the
    // sends that were seen. Partner: the frontend, which stores them one after the other.
    for (let index = 0; index < sends.length; index++) sends[index].look();
    for (let index = 0; index < receives.length; index++) done += receives[index].pump();
    for (let index = 0; index < sends.length; index++) done += sends[index].pump();
    this.counts.posted += done;
    return done;
  }

  #pumpCompletions(): number {
    const sides = this.guest.completionSides;
    let done = 0;
    for (let index = 0; index < sides.length; index++) done += sides[index].pump();
    this.counts.completions += done;
    return done;
  }

  #serveCall(): void {
    const area = this.#area;
    const sequence = Atomics.load(area, areaWord.callSequence);
    // What was posted before the call was posted first.
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
    // What the call completed is there when it returns.
    this.#pumpCompletions();
    this.#results.copyTo(area, areaWord.results);
    area[areaWord.resultCount] = this.#results.count;
    area[areaWord.replyStatus] = status;
    // Partner: the frontend, which says that it waits and then looks at the reply.
    Atomics.store(area, areaWord.replySequence, sequence);
    if (Atomics.exchange(area, areaWord.guestWaits, 0) === 1) this.#ring();
  }

  #announceEvent(): void {
    this.counts.events++;
    Atomics.add(this.#area, areaWord.eventCount, 1);
    this.#ringForEvent();
  }

  /** Once until the guest has looked. */
  #ringForEvent(): void {
    if (Atomics.exchange(this.#area, areaWord.guestRung, 1) === 0) this.#ring();
  }

  #ring(): void {
    this.counts.rings++;
    this.#transport.ring();
  }
}
