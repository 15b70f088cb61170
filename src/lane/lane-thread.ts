// A lane as the main thread sees it: messages in both directions, questions with answers, an
// orderly end.

import { Worker } from 'node:worker_threads';
import { MillraceError } from '../errors.ts';
import { EventFd, endProcess, laneHeap } from '../native/index.ts';
import { placeOfWorker } from '../watchdog/index.ts';
import type { FromLane, LaneConnections, LaneReport, LaneSettings, ToLane } from './messages.ts';

const isSource = import.meta.url.endsWith('.ts');
const program = new URL(isSource ? './worker.ts' : './worker.js', import.meta.url);
/** A lane that has not ended after this time is terminated. */
const CLOSE_MS = 3000;
/**
 * A thread that is not in JavaScript cannot be terminated: it is left to the end of the process.
 */
const TERMINATE_MS = 1000;

type Answer = Extract<FromLane, { kind: 'answer' }>;
type Question = Extract<ToLane, { kind: 'ask' }>['what'];

interface Asked {
  readonly what: Question;
  readonly answered: (answer: Answer | undefined) => void;
}

export class LaneThread implements AsyncDisposable {
  readonly index: number;
  readonly #worker: Worker;
  readonly #wake: EventFd;
  readonly #asked = new Map<number, Asked>();
  readonly #ended: Promise<void>;
  #nextId = 1;
  #isWaking = false;
  #isOver = false;
  #isClosing = false;
  /** 0 while it gives signs of life. */
  #stuckMs = 0;
  #lastReport: LaneReport | undefined;

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
        this.#asked.get(message.id)?.answered(message);
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
      for (const { answered } of this.#asked.values()) answered(undefined);
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

  /** Of a lane that is stuck: the last one that it gave. */
  async report(): Promise<LaneReport | undefined> {
    this.#lastReport = (await this.#askAwake('status'))?.report ?? this.#lastReport;
    const report = this.#isOver ? undefined : this.#lastReport;
    return report && { ...report, lane: { ...report.lane, stuckSeconds: this.#stuckMs / 1000 } };
  }

  /** A lane that is stuck tells of none. */
  async connections(): Promise<LaneConnections> {
    return (await this.#askAwake('connections'))?.connections ?? { carried: [], mirrored: [] };
  }

  /** For how long it has been stuck, by its watchdog; 0: it is not. */
  get stuckMs(): number {
    return this.#stuckMs;
  }

  set stuckMs(ms: number) {
    this.#stuckMs = ms;
    if (ms > 0) this.#leaveQuestions();
  }

  /** Where it is, for people. `threadId` is the kernel's number of it. */
  place(threadId: number): Promise<string> {
    return placeOfWorker(this.#worker, threadId);
  }

  /** Resolves when the lane has handled all messages before this one. */
  async settled(): Promise<void> {
    await this.#ask('nothing');
  }

  /** Resets what is still open. */
  async close(): Promise<void> {
    this.#isClosing = true;
    this.tell({ kind: 'close' });
    const left = Promise.withResolvers<void>();
    let timer = setTimeout(
      () => {
        void this.#worker.terminate();
        timer = setTimeout(() => {
          this.#leave();
          left.resolve();
        }, TERMINATE_MS);
      },
      this.#stuckMs > 0 ? 0 : CLOSE_MS,
    );
    await Promise.race([this.#ended, left.promise]);
    clearTimeout(timer);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Node would wait for the thread when the process ends. */
  #leave(): void {
    this.#worker.unref();
    process.once('exit', (code) => endProcess(code));
  }

  async #askAwake(what: 'status' | 'connections'): Promise<Answer | undefined> {
    return this.#stuckMs > 0 ? undefined : this.#ask(what);
  }

  /** Answers that may never come are not waited for, but for those of `settled`. */
  #leaveQuestions(): void {
    for (const [id, { what, answered }] of this.#asked) {
      if (what === 'nothing') continue;
      this.#asked.delete(id);
      answered(undefined);
    }
  }

  async #ask(what: Question): Promise<Answer | undefined> {
    if (this.#isOver) return undefined;
    const id = this.#nextId++;
    const { promise, resolve } = Promise.withResolvers<Answer | undefined>();
    this.#asked.set(id, { what, answered: resolve });
    this.tell({ kind: 'ask', id, what });
    return promise;
  }
}
