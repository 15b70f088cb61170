// The threads that engines run in. One whose stream has come to its end waits a moment for the next: to start a thread takes
// some 50 ms of processor time, a short stream without that 10.

import { Worker } from 'node:worker_threads';
import type { EngineSettings, FromEngine, ToEngine } from './engine-messages.ts';

const isSource = import.meta.url.endsWith('.ts');
const program = new URL(isSource ? './engine.ts' : './engine.js', import.meta.url);
const SPARE_MS = 1000;
/** A program may have both ends of a stream. */
const MAX_SPARES = 2;

const spares: EngineThread[] = [];

/** What the thread that has started an engine hears of it. */
export interface EngineEvents {
  readonly onMessage: (message: FromEngine) => void;
  /** Nothing of its stream is left. With a reason: because the whole thread is gone. Nothing comes after it. */
  readonly onRest: (reason?: string) => void;
}

export class EngineThread {
  readonly #worker = new Worker(program);
  #events: EngineEvents | undefined;
  #retiring: NodeJS.Timeout | undefined;

  static start(settings: EngineSettings, events: EngineEvents): EngineThread {
    const thread = spares.pop() ?? new EngineThread();
    clearTimeout(thread.#retiring);
    thread.#worker.ref();
    thread.#events = events;
    thread.tell({ kind: 'start', settings });
    return thread;
  }

  private constructor() {
    let reason = 'its engine has ended';
    this.#worker.on('message', (message: FromEngine) => {
      if (message.kind === 'idle') this.#idle();
      else this.#events?.onMessage(message);
    });
    this.#worker.on('error', (error) => {
      reason = String(error);
    });
    this.#worker.on('exit', () => {
      this.#leave();
      this.#rest(reason);
    });
  }

  /** To the engine that was started last: not after its rest. */
  tell(message: ToEngine): void {
    this.#worker.postMessage(message);
  }

  /** Ends the thread, and so the engine. */
  terminate(): void {
    void this.#worker.terminate();
  }

  #idle(): void {
    this.#worker.unref();
    if (spares.length < MAX_SPARES) {
      spares.push(this);
      this.#retiring = setTimeout(() => this.#retire(), SPARE_MS).unref();
    } else {
      this.#retire();
    }
    this.#rest();
  }

  #rest(reason?: string): void {
    const events = this.#events;
    this.#events = undefined;
    events?.onRest(reason);
  }

  #retire(): void {
    this.#leave();
    this.tell({ kind: 'retire' });
  }

  #leave(): void {
    clearTimeout(this.#retiring);
    const index = spares.indexOf(this);
    if (index >= 0) spares.splice(index, 1);
  }
}
