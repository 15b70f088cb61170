// The engine of a network stream: a thread of its own, because the program's may stand still in a page fault of the window.

import { parentPort, workerData } from 'node:worker_threads';
import { MillraceError, UnsupportedError, UsageError } from '../../errors.ts';
import { nameThread, Socket } from '../../native/index.ts';
import { BlockQueue } from '../block-queue.ts';
import type { EngineFailure, EngineSettings, FromEngine, ToEngine } from './engine-messages.ts';
import { failureCodeOf } from './failure-codes.ts';
import { failureOf, StreamFailure } from './stream-failure.ts';

const settings = workerData as EngineSettings;
const life = Socket.adopt(settings.lifeFd);
const port = parentPort;
if (port === null) throw new MillraceError('MILLRACE_ERR_FAILED', 'the engine of a stream runs in a worker thread');

const closing = new AbortController();
const queueAsked = Promise.withResolvers<BlockQueue>();
queueAsked.promise.catch(() => {});
let queue: BlockQueue | undefined;
let isOver = false;

const tell = (message: FromEngine): void => port.postMessage(message);

port.on('message', (message: ToEngine) => {
  if (message.kind === 'close') {
    const reason = new StreamFailure('closed', message.reason);
    closing.abort(reason);
    queueAsked.reject(reason);
    return;
  }
  try {
    queue = BlockQueue.open(message.parts);
    queueAsked.resolve(queue);
  } catch (error) {
    queueAsked.reject(error);
  }
});

/** Whatever happens, a program that waits in a page fault must hear of it: the queue tells. */
function end(error: unknown): void {
  if (isOver) return;
  isOver = true;
  const failure = error === undefined ? undefined : failureOf(error);
  const role = settings.role === 'sender' ? 'producer' : 'consumer';
  if (failure !== undefined) queue?.fail(failureCodeOf(failure.kind, role));
  queue?.close();
  tell({ kind: 'ended', failure: failure && { kind: kindOf(error, failure), reason: failure.message } });
  port?.close();
  life.close();
}

function kindOf(error: unknown, failure: StreamFailure): EngineFailure['kind'] {
  if (error instanceof UsageError) return 'usage';
  if (error instanceof UnsupportedError) return 'unsupported';
  if (error instanceof MillraceError && error.code === 'MILLRACE_ERR_NOT_RUNNING') return 'absent';
  return error instanceof StreamFailure ? failure.kind : 'failed';
}

process.on('uncaughtException', end);

try {
  nameThread(`vortex-${settings.role}`);
  const calls = {
    tell,
    signal: closing.signal,
    queue: (blockBytes: number, sizeBytes: number | undefined): Promise<BlockQueue> => {
      tell({ kind: 'geometry', blockBytes, sizeBytes });
      return queueAsked.promise;
    },
  };
  if (settings.role === 'sender') {
    queue = BlockQueue.open(settings.queue);
    const { sendStream } = await import('./engine-sender.ts');
    await sendStream(settings, queue, calls);
  } else {
    const { receiveStream } = await import('./engine-receiver.ts');
    await receiveStream(settings, calls);
  }
  end(undefined);
} catch (error) {
  end(error);
}
