// A mover: moves blocks between the queue of one host and the network, whatever the wire.

import type { Poller } from '../../../native/index.ts';

/**
 * The token of a mover's descriptors in the poller of the engine's loop; the queue's doorbell has
 * 0.
 */
export const WIRE_TOKEN = 1;

/** Runs in the engine's thread and never blocks it. Errors are thrown as a `StreamFailure`. */
export interface Mover extends Disposable {
  /**
   * Adds its descriptors to the poller: `pump` runs after each of their events, and after each
   * signal of the queue.
   */
  watch(poller: Poller): void;
  /** Moves what can be moved now. True when it stopped only because its turn was over. */
  pump(): boolean;
  /** Asks for an event at the next completion. False when there is one already: pump again. */
  arm(): boolean;
}

export interface ReceiverMover extends Mover {
  /**
   * Whether a stream of this length has arrived completely; throws when more bytes have arrived.
   */
  isComplete(sizeBytes: number): boolean;
}
