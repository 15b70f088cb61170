// The indexer: tells the peer how far its ring was read, seldom enough to cost little and often
// enough that the writer never stops.

import { storeRelease } from '../native/index.ts';
import type { IncomingRing } from './incoming-ring.ts';
import { controlWords } from './region-layout.ts';

/** How the peer's control words are reached. */
export interface ControlPath {
  /** The peer's control words of the ring that we read, where its region is mapped. */
  readonly words: Uint32Array | undefined;
  /**
   * WRITEs both words; `isNotification` wakes the peer for them. False when the queue is full: try
   * again later.
   */
  postControl(readPosition: number, readerMode: number, isNotification: boolean): boolean;
}

export class Indexer {
  readonly #ring: IncomingRing;
  readonly #threshold: number;
  #published = 0;
  publications = 0;

  constructor(ring: IncomingRing) {
    this.#ring = ring;
    // An eighth: see checkGeometry.
    this.#threshold = ring.geometry.slots / 8;
  }

  get isDue(): boolean {
    return (this.#ring.position - this.#published) >>> 0 >= this.#threshold;
  }

  /** How far the peer was told. */
  get published(): number {
    return this.#published;
  }

  /** The peer has not been told of everything that was read. */
  get isBehind(): boolean {
    return this.#ring.position !== this.#published;
  }

  /** The peer was told how far we have read by the handshake. */
  told(position: number): void {
    this.#published = position;
  }

  publish(path: ControlPath, readerMode: number): void {
    const { position } = this.#ring;
    if (path.words !== undefined) {
      // Partner: OutgoingRing.refresh at the peer, which then writes slots that were cleared before
      // this store.
      storeRelease(path.words, controlWords.readPosition, position);
    } else if (!path.postControl(position, readerMode, false)) {
      return;
    }
    this.#published = position;
    this.publications++;
  }
}
