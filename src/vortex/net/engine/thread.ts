// The threads that engines run in. A thread whose stream has ended stays for a second to run the
// next one: starting a thread takes some 50 ms of processor time, a short stream without that 10
// ms.

import { Worker } from 'node:worker_threads';
import type { EngineSettings, FromEngine, ToEngine } from './messages.ts';

const isSource = import.meta.url.endsWith('.ts');
const program = new URL(isSource ? './engine.ts' : './engine.js', import.meta.url);
const SPARE_MS = 1000;
/** Two, because a program may have both ends of a stream. */
const MAX_SPARES = 2;

const spares: EngineThread[] = [];

interface EngineEvents {
  readonly onMessage: (message: FromEngine) => void;
  /** The last event: nothing of the stream is left. With a reason: because the thread has ended. */
  readonly onIdle: (reason?: string) => void;
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
    let reason = 'the thread of its engine has ended';
    this.#worker.on('message', (message: FromEngine) => {
      if (message.kind === 'idle') this.#onIdle();
      else this.#events?.onMessage(message);
    });
    this.#worker.on('error', (error) => {
      reason = String(error);
    });
    this.#worker.on('exit', () => {
      this.#removeSpare();
      this.#ended(reason);
    });
  }

  /** To the engine that was started last; not after `onIdle`. */
  tell(message: ToEngine): void {
    this.#worker.postMessage(message);
  }

  /** Ends the thread, and so the engine. */
  terminate(): void {
    void this.#worker.terminate();
  }

  #onIdle(): void {
    this.#worker.unref();
    if (spares.length < MAX_SPARES) {
      spares.push(this);
      this.#retiring = setTimeout(() => this.#retire(), SPARE_MS).unref();
    } else {
      this.#retire();
    }
    this.#ended();
  }

  #ended(reason?: string): void {
    const events = this.#events;
    this.#events = undefined;
    events?.onIdle(reason);
  }

  #retire(): void {
    this.#removeSpare();
    this.tell({ kind: 'retire' });
  }

  #removeSpare(): void {
    clearTimeout(this.#retiring);
    const index = spares.indexOf(this);
    if (index >= 0) spares.splice(index, 1);
  }
}
