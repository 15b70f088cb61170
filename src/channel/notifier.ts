// The notifier: lets a lane that has nothing to do sleep without missing what its peer writes
// meanwhile.
//
// In shared memory (`CoherentNotifier`) the two sides meet in two words. The reader stores
// `sleeps`, then polls the ring once more; the writer stores its record, then loads the reader's
// mode. All four are sequentially consistent, so at least one of them sees the other's store:
// either the reader does not sleep, or the writer wakes it. The writer takes the word back to
// `polls` with one exchange, so that a sleeper is woken once, however much is written.
//
// Across a wire (`WireNotifier`) words arrive late, so that does not hold. There the reader is in
// one of two modes, which the writer knows: `events`, in which every flush ends with a
// notification, and `polls`, in which none does. Only the way back from `polls` to `events` is
// delicate: records that were written before the writer got the new mode had no notification. So
// that change is itself sent with a notification, and the writer answers it with one if it has
// written more than it has notified of. Sleeping needs `events` and nothing else. A notification
// may arrive before its records, which take other queue pairs: it tells their end, and the reader
// does not sleep until it has read up to there.

import { compareExchange, loadAcquire, storeRelease } from '../native/index.ts';
import type { IncomingRing } from './incoming-ring.ts';
import type { ControlPath } from './indexer.ts';
import type { OutgoingRing } from './outgoing-ring.ts';
import { controlWords, readerModes } from './region-layout.ts';

export interface Notifier {
  /** The mode that this side, as the reader, has told the peer. */
  readonly mode: number;
  /** After records were put where the peer sees them: whether the peer must be notified. */
  mustNotify(): boolean;
  /** The peer was notified of everything up to this position. */
  notified(position: number): void;
  /** The peer notified us: records up to this position are there or on their way. */
  onNotification(position: number): void;
  /**
   * The peer's control words came with a notification. True when the peer must be notified of
   * something.
   */
  onControlNotification(): boolean;
  /** True when the lane may block: whatever is written from now on wakes it. */
  prepareSleep(path: ControlPath): boolean;
  /**
   * As the writer of a full ring: true when the lane may block until the peer has read something.
   */
  prepareRoomWait(): boolean;
  /** As the reader, after the read index was published: whether the writer waits for that. */
  mustNotifyRoom(): boolean;
  /** Whether the writer is known to wait for room: the index is due however little was read. */
  readonly isRoomWanted: boolean;
  /** The lane is awake again. `hasWork`: it found records. */
  awake(path: ControlPath, hasWork: boolean): void;
}

/** Control words in shared memory: of each ring in our region and in the peer's. */
interface CoherentWords {
  readonly ownOutgoing: Uint32Array;
  readonly ownIncoming: Uint32Array;
  readonly peerOutgoing: Uint32Array;
  readonly peerIncoming: Uint32Array;
}

export class CoherentNotifier implements Notifier {
  readonly #incoming: IncomingRing;
  readonly #outgoing: OutgoingRing;
  /** In our region: where the peer, as the reader of our ring, stores its mode. */
  readonly #own: Uint32Array;
  /** In the peer's region: where we store our mode. */
  readonly #peer: Uint32Array;
  /** The same for writers that wait for room. */
  readonly #ownWait: Uint32Array;
  readonly #peerWait: Uint32Array;

  constructor(incoming: IncomingRing, outgoing: OutgoingRing, words: CoherentWords) {
    this.#incoming = incoming;
    this.#outgoing = outgoing;
    this.#own = words.ownOutgoing;
    this.#peer = words.peerIncoming;
    this.#ownWait = words.ownIncoming;
    this.#peerWait = words.peerOutgoing;
  }

  get mode(): number {
    return loadAcquire(this.#peer, controlWords.readerMode);
  }

  mustNotify(): boolean {
    // After the record was stored. Partner: `prepareSleep` at the peer.
    if (loadAcquire(this.#own, controlWords.readerMode) !== readerModes.sleeps) return false;
    const was = compareExchange(this.#own, controlWords.readerMode, readerModes.sleeps, readerModes.polls);
    return was === readerModes.sleeps;
  }

  notified(): void {}

  onNotification(): void {}

  onControlNotification(): boolean {
    return false;
  }

  prepareSleep(): boolean {
    // Before the ring is polled once more. Partner: `mustNotify` at the peer.
    storeRelease(this.#peer, controlWords.readerMode, readerModes.sleeps);
    if (!this.#incoming.hasNext) return true;
    storeRelease(this.#peer, controlWords.readerMode, readerModes.polls);
    return false;
  }

  /**
   * The same argument: we store `waits`, then load the index; the reader stores the index, then
   * loads `waits`.
   */
  prepareRoomWait(): boolean {
    // Partner: `isRoomWanted` at the peer.
    storeRelease(this.#peerWait, controlWords.writerWaits, 1);
    const before = this.#outgoing.peerPosition;
    return this.#outgoing.refresh() && this.#outgoing.peerPosition === before;
  }

  get isRoomWanted(): boolean {
    // Partner: `prepareRoomWait` at the peer.
    return loadAcquire(this.#ownWait, controlWords.writerWaits) !== 0;
  }

  mustNotifyRoom(): boolean {
    if (!this.isRoomWanted) return false;
    storeRelease(this.#ownWait, controlWords.writerWaits, 0);
    return true;
  }

  awake(): void {
    // Woken by something else: the writer need not ring. Partner: `mustNotify` at the peer.
    if (loadAcquire(this.#peer, controlWords.readerMode) === readerModes.sleeps) {
      storeRelease(this.#peer, controlWords.readerMode, readerModes.polls);
    }
  }
}

/** After so many turns with records in a row, notifications cost more than polling. */
const BUSY_TURNS = 64;

export class WireNotifier implements Notifier {
  readonly #incoming: IncomingRing;
  readonly #outgoing: OutgoingRing;
  #mode: number = readerModes.events;
  /** In the outgoing ring: the peer was notified of everything before this position. */
  #notified: number;
  /** In the incoming ring: records up to this position are on their way. */
  #due: number;
  #busyTurns = 0;

  constructor(incoming: IncomingRing, outgoing: OutgoingRing) {
    this.#incoming = incoming;
    this.#outgoing = outgoing;
    this.#notified = outgoing.peerPosition;
    this.#due = incoming.cursor;
  }

  get mode(): number {
    return this.#mode;
  }

  mustNotify(): boolean {
    // Any other number that the peer writes there is taken for `events`.
    return this.#outgoing.readerMode !== readerModes.polls && this.#notified !== this.#outgoing.position;
  }

  notified(position: number): void {
    this.#notified = position;
  }

  onNotification(position: number): void {
    // No further ahead than the ring is long: a wrong position only keeps us from sleeping. And
    // never back: notifications of several queue pairs overtake each other.
    const { cursor, geometry } = this.#incoming;
    const isNews = ((position - this.#due) | 0) > 0 || ((cursor - this.#due) | 0) > 0;
    if (isNews && (position - cursor) >>> 0 <= geometry.slots) this.#due = position;
  }

  onControlNotification(): boolean {
    return this.mustNotify();
  }

  prepareSleep(path: ControlPath): boolean {
    const { cursor } = this.#incoming;
    if (this.#incoming.hasNext) return false;
    this.#busyTurns = 0;
    // Records that were read without a notification are not waited for.
    if ((cursor - this.#due) >>> 0 < 0x8000_0000) this.#due = cursor;
    if (this.#mode !== readerModes.events) {
      if (!path.postControl(this.#incoming.position, readerModes.events, true)) return false;
      this.#mode = readerModes.events;
    }
    return this.#due === cursor;
  }

  /** The index comes as a plain WRITE, which wakes nobody: the lane naps and polls it. */
  prepareRoomWait(): boolean {
    return false;
  }

  get isRoomWanted(): boolean {
    return false;
  }

  mustNotifyRoom(): boolean {
    return false;
  }

  awake(path: ControlPath, hasWork: boolean): void {
    if (!hasWork || this.#mode === readerModes.polls) return;
    if (++this.#busyTurns < BUSY_TURNS) return;
    if (path.postControl(this.#incoming.position, readerModes.polls, false)) this.#mode = readerModes.polls;
  }
}
