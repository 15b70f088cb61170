// The engine of a receiver: dials a sender, comes to terms with it, and receives until all is read.

import { once } from 'node:events';
import type { Socket as NodeSocket } from 'node:net';
import { MillraceError, UsageError } from '../../errors.ts';
import { dial, dialFailure } from '../../tls/index.ts';
import type { BlockQueue } from '../stream/index.ts';
import { Control } from './control.ts';
import type { ReceiverSettings } from './engine-messages.ts';
import type { EngineCalls } from './engine-sender.ts';
import type { ReceiveMover } from './mover.ts';
import type { Offer } from './protocol.ts';
import { ReceiverSession } from './session.ts';
import { failureOf, StreamFailure } from './stream-failure.ts';
import { openTcpReceiver } from './tcp-connection.ts';

export interface ReceiverCalls extends EngineCalls {
  /** Has the program's thread make a queue. */
  readonly queue: (blockBytes: number, sizeBytes: number | undefined) => Promise<BlockQueue>;
}

interface Met {
  readonly mover: ReceiveMover;
  readonly queue: BlockQueue;
  readonly offer: Offer;
}

/** Resolves when everything is read; throws a StreamFailure when the stream ends before. */
export async function receiveStream(settings: ReceiverSettings, calls: ReceiverCalls): Promise<void> {
  const limit = AbortSignal.timeout(settings.timeoutMs);
  const meeting = AbortSignal.any([limit, calls.signal]);
  let control: Control | undefined;
  let met: Met;
  try {
    const socket = await call(settings, meeting);
    control = new Control(socket);
    met = await meet(settings, control, socket, calls, meeting);
  } catch (error) {
    const isLate = limit.aborted && !calls.signal.aborted;
    const failure = isLate ? new StreamFailure('silent', 'the sender took too long to answer') : error;
    control?.end({ kind: 'bye', reason: failureOf(failure).message });
    throw failure;
  }
  await run(settings, control, met, calls);
}

async function run(settings: ReceiverSettings, control: Control, met: Met, calls: ReceiverCalls): Promise<void> {
  const { mover, queue, offer } = met;
  const { signal } = calls;
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const onEnd = (failure: StreamFailure | undefined): void => (failure === undefined ? resolve() : reject(failure));
  const options = { queue, control, timeoutMs: settings.timeoutMs, onEnd };
  const session = new ReceiverSession(options, mover, offer.sizeBytes);
  const onClose = (): void => session.close((signal.reason as Error).message);
  signal.addEventListener('abort', onClose);
  if (signal.aborted) onClose();
  calls.tell({ kind: 'ready', peer: control.peer });
  session.start();
  try {
    await promise;
  } finally {
    signal.removeEventListener('abort', onClose);
  }
}

async function call(settings: ReceiverSettings, signal: AbortSignal): Promise<NodeSocket> {
  const { host, port, security, peerName } = settings;
  const { socket, ready } = dial({ host, port, name: peerName }, security, undefined);
  try {
    await once(socket, ready, { signal });
    return socket;
  } catch (error) {
    socket.on('error', () => {});
    socket.destroy();
    signal.throwIfAborted();
    const isRefused = error instanceof Error && 'code' in error && error.code === 'ECONNREFUSED';
    const { reason, isFault } = dialFailure(error as Error);
    if (isFault) throw new StreamFailure('nonsense', reason, { cause: error });
    const message = isRefused ? 'ECONNREFUSED (nobody listens there)' : reason;
    throw new MillraceError('MILLRACE_ERR_NOT_RUNNING', message, { cause: error });
  }
}

async function meet(
  settings: ReceiverSettings,
  control: Control,
  socket: NodeSocket,
  { queue: makeQueue }: ReceiverCalls,
  signal: AbortSignal,
): Promise<Met> {
  const { device, strategy } = settings;
  const wire = device === undefined ? undefined : (await import('./verbs-device.ts')).wireOfDevice(device);
  control.send({ kind: 'hello', wire, strategy });
  const offer = await control.expect('offer', signal);
  if (wire !== undefined && wire !== offer.wire) throw new UsageError(`the sender offers ${offer.wire}, not ${wire}`);
  if (strategy !== undefined && strategy !== offer.strategy && offer.wire !== 'tcp') {
    throw new UsageError(`the sender offers the strategy ${offer.strategy}, not ${strategy}`);
  }
  const queue = await makeQueue(offer.blockBytes, offer.sizeBytes);
  if (offer.wire === 'tcp') {
    control.send({ kind: 'accept', poolBlocks: queue.poolBlocks, path: [] });
    await control.expect('connect', signal);
    const { remoteAddress = settings.host, remotePort = settings.port } = socket;
    const mover = await openTcpReceiver(queue, remoteAddress, remotePort, offer.token, signal);
    control.send({ kind: 'ready' });
    return { mover, queue, offer };
  }
  const { openVerbsReceiver } = await import('./verbs-sides.ts');
  const place = { device, wire: offer.wire, localAddress: control.localAddress, strategy: offer.strategy };
  using undo = new DisposableStack();
  const mover = undo.use(openVerbsReceiver(queue, place));
  control.send({ kind: 'accept', poolBlocks: queue.poolBlocks, path: mover.offer });
  const { path } = await control.expect('connect', signal);
  await mover.connect(path);
  control.send({ kind: 'ready' });
  await mover.prepare(signal);
  undo.move();
  return { mover, queue, offer };
}
