// The indexer: tells the peer how far its ring was read, seldom enough to cost nothing and often enough to never stop it.

import { storeRelease } from '../native/index.ts';
import type { IncomingRing } from './incoming-ring.ts';
import { controlWords } from './region-layout.ts';

/** How the peer's control words are reached. */
export interface ControlPath {
  /** In place, where the peer's region is mapped: its control words of the ring that we read. */
  readonly words: Uint32Array | undefined;
  /** Posts both words; `isNotification` wakes the peer for it. False when the queue is full: try again. */
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

  /** Something was read that the peer was not told of. */
  get hasNews(): boolean {
    return this.#ring.position !== this.#published;
  }

  /** The peer was told how far we are in another way. */
  told(position: number): void {
    this.#published = position;
  }

  publish(path: ControlPath, readerMode: number): void {
    const { position } = this.#ring;
    if (path.words !== undefined) {
      // Partner: OutgoingRing.refresh at the peer. The slots were cleared before.
      storeRelease(path.words, controlWords.readPosition, position);
    } else if (!path.postControl(position, readerMode, false)) {
      return;
    }
    this.#published = position;
    this.publications++;
  }
}
