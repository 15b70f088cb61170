// The engine of a network stream: a thread of its own, because the program's thread may be blocked
// in a page fault.

import { setImmediate as nextTurn } from 'node:timers/promises';
import { parentPort } from 'node:worker_threads';
import { MillraceError, UnsupportedError, UsageError } from '../../../errors.ts';
import { nameThread, Socket } from '../../../native/index.ts';
import { BlockQueue } from '../../stream/index.ts';
import { controlsClosed } from '../control.ts';
import { failureCodeOf, failureOf, StreamFailure } from '../stream-failure.ts';
import type { EngineFailure, EngineSettings, FromEngine, ToEngine } from './messages.ts';

const port = parentPort;
if (port === null)
  throw new MillraceError('MILLRACE_ERR_FAILED', 'start the engine of a stream: it must run in a worker thread');

/** Turns of Node's event loop that closed handles get to disappear. */
const LAST_TURNS = 10;

const tell = (message: FromEngine): void => port.postMessage(message);

/** The engine of one stream. A thread runs several, one after the other. */
class Engine {
  readonly #settings: EngineSettings;
  readonly #lifeline: Socket;
  readonly #closing = new AbortController();
  readonly #givenQueue = Promise.withResolvers<BlockQueue>();
  #queue: BlockQueue | undefined;
  #isOver = false;

  get isOver(): boolean {
    return this.#isOver;
  }

  constructor(settings: EngineSettings) {
    this.#settings = settings;
    this.#lifeline = Socket.adopt(settings.lifelineFd);
    this.#givenQueue.promise.catch(() => {});
  }

  onMessage(message: Extract<ToEngine, { kind: 'queue' | 'close' }>): void {
    if (message.kind === 'close') {
      const reason = new StreamFailure('closed', message.reason);
      this.#closing.abort(reason);
      this.#givenQueue.reject(reason);
      return;
    }
    try {
      this.#queue = BlockQueue.open(message.parts);
      this.#givenQueue.resolve(this.#queue);
    } catch (error) {
      this.#givenQueue.reject(error);
    }
  }

  async run(): Promise<void> {
    try {
      await this.#moveBlocks();
      await this.end(undefined);
    } catch (error) {
      await this.end(error);
    }
  }

  async #moveBlocks(): Promise<void> {
    const settings = this.#settings;
    nameThread(`vortex-${settings.role}`);
    const context = { tell, signal: this.#closing.signal };
    if (settings.role === 'sender') {
      this.#queue = BlockQueue.open(settings.queue);
      const { sendStream } = await import('./sender.ts');
      await sendStream(settings, this.#queue, context);
      return;
    }
    const { receiveStream } = await import('./receiver.ts');
    const makeQueue = (blockBytes: number, sizeBytes: number | undefined): Promise<BlockQueue> => {
      tell({ kind: 'geometry', blockBytes, sizeBytes });
      return this.#givenQueue.promise;
    };
    await receiveStream(settings, { ...context, makeQueue });
  }

  /**
   * A program that waits in a page fault gets no message, so a failure is recorded in the queue
   * first.
   */
  async end(error: unknown): Promise<void> {
    if (this.#isOver) return;
    this.#isOver = true;
    const failure = error === undefined ? undefined : failureOf(error);
    const role = this.#settings.role === 'sender' ? 'producer' : 'consumer';
    if (failure !== undefined) this.#queue?.fail(failureCodeOf(failure.kind, role));
    this.#queue?.close();
    tell({ kind: 'ended', failure: failure && { kind: kindOf(error, failure), reason: failure.message } });
    this.#lifeline.close();
    await release(failure === undefined);
  }
}

/** A thread whose stream did not fail can get another one, once nothing is left of this one. */
async function release(isClean: boolean): Promise<void> {
  if (isClean) await controlsClosed();
  for (let turn = 0; isClean && turn < LAST_TURNS && !isIdle(); turn++) await nextTurn();
  engine = undefined;
  if (isClean && isIdle()) tell({ kind: 'idle' });
  else port?.close();
}

/** Whether the port to the program is all that keeps this thread alive. */
function isIdle(): boolean {
  return process.getActiveResourcesInfo().every((name) => name === 'MessagePort');
}

function kindOf(error: unknown, failure: StreamFailure): EngineFailure['kind'] {
  if (error instanceof UsageError) return 'usage';
  if (error instanceof UnsupportedError) return 'unsupported';
  if (error instanceof MillraceError && error.code === 'MILLRACE_ERR_NOT_RUNNING') return 'absent';
  return error instanceof StreamFailure ? failure.kind : 'failed';
}

let engine: Engine | undefined;

port.on('message', (message: ToEngine) => {
  if (message.kind === 'start') {
    engine = new Engine(message.settings);
    void engine.run();
  } else if (message.kind === 'retire') {
    port.close();
  } else {
    engine?.onMessage(message);
  }
});

process.on('uncaughtException', (error) => {
  // Without a stream, or when its end failed, only the exit of this thread can tell the program.
  if (engine === undefined || engine.isOver) process.exit(1);
  void engine.end(error);
});
