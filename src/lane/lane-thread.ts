// A lane as the main thread sees it: messages in both directions, questions with answers, an
// orderly end.

import { Worker } from 'node:worker_threads';
import { MillraceError } from '../errors.ts';
import { EventFd, laneHeap } from '../native/index.ts';
import type { FromLane, LaneConnections, LaneReport, LaneSettings, ToLane } from './messages.ts';

const isSource = import.meta.url.endsWith('.ts');
const program = new URL(isSource ? './worker.ts' : './worker.js', import.meta.url);
/** A lane that has not ended after this time is terminated. */
const CLOSE_MS = 3000;

type Answer = Extract<FromLane, { kind: 'answer' }>;

export class LaneThread implements AsyncDisposable {
  readonly index: number;
  readonly #worker: Worker;
  readonly #wake: EventFd;
  readonly #asked = new Map<number, (answer: Answer | undefined) => void>();
  readonly #ended: Promise<void>;
  #nextId = 1;
  #isWaking = false;
  #isOver = false;
  #isClosing = false;

  /**
   * Resolves when the lane accepts clients. `onMessage` gets all messages but answers; `onDeath`:
   * the lane ended by itself.
   */
  static async start(
    settings: Omit<LaneSettings, 'wakeFd'>,
    onMessage: (message: FromLane) => void,
    onDeath: (reason: string) => void,
  ): Promise<LaneThread> {
    const lane = new LaneThread(settings, onMessage, onDeath);
    await lane.#ready.promise;
    return lane;
  }

  readonly #ready = Promise.withResolvers<void>();

  private constructor(
    settings: Omit<LaneSettings, 'wakeFd'>,
    onMessage: (message: FromLane) => void,
    onDeath: (reason: string) => void,
  ) {
    this.index = settings.index;
    this.#wake = EventFd.create();
    const workerData: LaneSettings = { ...settings, wakeFd: this.#wake.fd };
    this.#worker = new Worker(program, { workerData, resourceLimits: laneHeap });
    let reason = 'it ended';
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#ended = promise;
    this.#worker.on('message', (message: FromLane) => {
      if (message.kind === 'answer') {
        this.#asked.get(message.id)?.(message);
        this.#asked.delete(message.id);
      } else if (message.kind === 'ready') {
        this.#ready.resolve();
      } else if (message.kind === 'failed') {
        reason = message.reason;
      } else if (message.kind !== 'closed') {
        onMessage(message);
      }
    });
    this.#worker.on('error', (error) => {
      reason = error instanceof Error ? (error.stack ?? error.message) : String(error);
    });
    this.#worker.on('exit', () => {
      this.#isOver = true;
      this.#wake.close();
      for (const answered of this.#asked.values()) answered(undefined);
      this.#asked.clear();
      resolve();
      this.#ready.reject(new MillraceError('MILLRACE_ERR_FAILED', `start lane ${this.index}: ${reason}`));
      if (!this.#isClosing) onDeath(reason);
    });
    // `start` awaits it; a rejection after that is no error.
    this.#ready.promise.catch(() => {});
  }

  tell(message: ToLane): void {
    if (this.#isOver) return;
    this.#worker.postMessage(message);
    if (this.#isWaking) return;
    // At the end of this turn, once for all messages of it.
    this.#isWaking = true;
    queueMicrotask(() => {
      this.#isWaking = false;
      if (!this.#isOver) this.#wake.signal();
    });
  }

  async report(): Promise<LaneReport | undefined> {
    return (await this.#ask('status'))?.report;
  }

  async connections(): Promise<LaneConnections> {
    return (await this.#ask('connections'))?.connections ?? { carried: [], mirrored: [] };
  }

  /** Resolves when the lane has handled all messages before this one. */
  async settled(): Promise<void> {
    await this.#ask('nothing');
  }

  /** Resets what is still open. */
  async close(): Promise<void> {
    this.#isClosing = true;
    this.tell({ kind: 'close' });
    const timer = setTimeout(() => void this.#worker.terminate(), CLOSE_MS);
    await this.#ended;
    clearTimeout(timer);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #ask(what: Extract<ToLane, { kind: 'ask' }>['what']): Promise<Answer | undefined> {
    if (this.#isOver) return undefined;
    const id = this.#nextId++;
    const { promise, resolve } = Promise.withResolvers<Answer | undefined>();
    this.#asked.set(id, resolve);
    this.tell({ kind: 'ask', id, what });
    return promise;
  }
}
