// What moves the blocks of one side between its queue and the network, whatever the wire.

import type { Poller } from '../../native/index.ts';

/** All of it runs in the engine's thread and never blocks. What goes wrong is thrown as a `StreamFailure`. */
export interface Mover extends Disposable {
  /** Adds what it waits for, edge-triggered: `pump` runs after every event, and after every signal of the queue. */
  watch(poller: Poller): void;
  /** Moves what can be moved now. True when it stopped only to let others have their turn. */
  pump(): boolean;
  /** Asks for an event at whatever comes next. False when something has come already: pump again. */
  arm(): boolean;
}

export interface ReceiveMover extends Mover {
  /** Whether a stream of this length has arrived as a whole; throws when more than that has. */
  isComplete(sizeBytes: number): boolean;
}
