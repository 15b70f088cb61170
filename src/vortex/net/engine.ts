// The engine of a network stream: a thread of its own, because the program's may stand still in a page fault of the window.

import { setImmediate as nextTurn } from 'node:timers/promises';
import { parentPort } from 'node:worker_threads';
import { MillraceError, UnsupportedError, UsageError } from '../../errors.ts';
import { nameThread, Socket } from '../../native/index.ts';
import { BlockQueue } from '../stream/index.ts';
import { controlsClosed } from './control.ts';
import type { EngineFailure, EngineSettings, FromEngine, ToEngine } from './engine-messages.ts';
import { failureCodeOf } from './failure-codes.ts';
import { failureOf, StreamFailure } from './stream-failure.ts';

const port = parentPort;
if (port === null) throw new MillraceError('MILLRACE_ERR_FAILED', 'the engine of a stream runs in a worker thread');

/** Turns of the event loop in which what is closed comes to its end. */
const LAST_TURNS = 10;

const tell = (message: FromEngine): void => port.postMessage(message);

/** One stream, from its start to its last word. */
class EngineStream {
  readonly #settings: EngineSettings;
  readonly #life: Socket;
  readonly #closing = new AbortController();
  readonly #queueAsked = Promise.withResolvers<BlockQueue>();
  #queue: BlockQueue | undefined;
  #isOver = false;

  get isOver(): boolean {
    return this.#isOver;
  }

  constructor(settings: EngineSettings) {
    this.#settings = settings;
    this.#life = Socket.adopt(settings.lifeFd);
    this.#queueAsked.promise.catch(() => {});
  }

  hear(message: Extract<ToEngine, { kind: 'queue' | 'close' }>): void {
    if (message.kind === 'close') {
      const reason = new StreamFailure('closed', message.reason);
      this.#closing.abort(reason);
      this.#queueAsked.reject(reason);
      return;
    }
    try {
      this.#queue = BlockQueue.open(message.parts);
      this.#queueAsked.resolve(this.#queue);
    } catch (error) {
      this.#queueAsked.reject(error);
    }
  }

  async run(): Promise<void> {
    try {
      await this.#carry();
      await this.end(undefined);
    } catch (error) {
      await this.end(error);
    }
  }

  async #carry(): Promise<void> {
    const settings = this.#settings;
    nameThread(`vortex-${settings.role}`);
    const calls = { tell, signal: this.#closing.signal };
    if (settings.role === 'sender') {
      this.#queue = BlockQueue.open(settings.queue);
      const { sendStream } = await import('./engine-sender.ts');
      await sendStream(settings, this.#queue, calls);
      return;
    }
    const { receiveStream } = await import('./engine-receiver.ts');
    const queue = (blockBytes: number, sizeBytes: number | undefined): Promise<BlockQueue> => {
      tell({ kind: 'geometry', blockBytes, sizeBytes });
      return this.#queueAsked.promise;
    };
    await receiveStream(settings, { ...calls, queue });
  }

  /** Whatever happens, a program that waits in a page fault must hear of it: the queue tells. */
  async end(error: unknown): Promise<void> {
    if (this.#isOver) return;
    this.#isOver = true;
    const failure = error === undefined ? undefined : failureOf(error);
    const role = this.#settings.role === 'sender' ? 'producer' : 'consumer';
    if (failure !== undefined) this.#queue?.fail(failureCodeOf(failure.kind, role));
    this.#queue?.close();
    tell({ kind: 'ended', failure: failure && { kind: kindOf(error, failure), reason: failure.message } });
    this.#life.close();
    await leave(failure === undefined);
  }
}

/** A thread that has carried a stream well can have another, once this one has left nothing behind. */
async function leave(isWell: boolean): Promise<void> {
  if (isWell) await controlsClosed();
  for (let turn = 0; isWell && turn < LAST_TURNS && !isAlone(); turn++) await nextTurn();
  stream = undefined;
  if (isWell && isAlone()) tell({ kind: 'idle' });
  else port?.close();
}

/** Whether nothing but the program can give this thread something to do. */
function isAlone(): boolean {
  return process.getActiveResourcesInfo().every((name) => name === 'MessagePort');
}

function kindOf(error: unknown, failure: StreamFailure): EngineFailure['kind'] {
  if (error instanceof UsageError) return 'usage';
  if (error instanceof UnsupportedError) return 'unsupported';
  if (error instanceof MillraceError && error.code === 'MILLRACE_ERR_NOT_RUNNING') return 'absent';
  return error instanceof StreamFailure ? failure.kind : 'failed';
}

let stream: EngineStream | undefined;

port.on('message', (message: ToEngine) => {
  if (message.kind === 'start') {
    stream = new EngineStream(message.settings);
    void stream.run();
  } else if (message.kind === 'retire') {
    port.close();
  } else {
    stream?.hear(message);
  }
});

process.on('uncaughtException', (error) => {
  // Without a stream, or when not even its end went well, there is nobody to tell but the thread that waits for this one.
  if (stream === undefined || stream.isOver) process.exit(1);
  void stream.end(error);
});
