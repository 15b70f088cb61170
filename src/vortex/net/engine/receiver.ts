// The engine of a receiver: dials a sender, agrees with it, and receives until everything is read.

import { once } from 'node:events';
import type { Socket as NodeSocket } from 'node:net';
import { MillraceError, UsageError } from '../../../errors.ts';
import { dial, dialFailure } from '../../../tls/index.ts';
import type { BlockQueue } from '../../stream/index.ts';
import { Control } from '../control.ts';
import type { ReceiverMover } from '../movers/mover.ts';
import { openTcpReceiver } from '../movers/tcp-connection.ts';
import type { Offer } from '../protocol.ts';
import { failureOf, StreamFailure } from '../stream-failure.ts';
import type { ReceiverSettings } from './messages.ts';
import type { EngineContext } from './sender.ts';
import { ReceiverStream } from './stream.ts';

interface ReceiverContext extends EngineContext {
  /** Asks the program's thread to make the queue. */
  readonly makeQueue: (blockBytes: number, sizeBytes: number | undefined) => Promise<BlockQueue>;
}

interface Agreement {
  readonly mover: ReceiverMover;
  readonly queue: BlockQueue;
  readonly offer: Offer;
}

/** Resolves when everything is read; throws a StreamFailure when the stream ends before. */
export async function receiveStream(settings: ReceiverSettings, context: ReceiverContext): Promise<void> {
  const limit = AbortSignal.timeout(settings.timeoutMs);
  const handshakeSignal = AbortSignal.any([limit, context.signal]);
  let control: Control | undefined;
  let agreed: Agreement;
  try {
    const socket = await dialSender(settings, handshakeSignal);
    control = new Control(socket);
    agreed = await shakeHands(settings, control, socket, context, handshakeSignal);
  } catch (error) {
    const isLate = limit.aborted && !context.signal.aborted;
    const failure = isLate ? new StreamFailure('silent', 'the sender took too long to answer') : error;
    control?.end({ kind: 'bye', reason: failureOf(failure).message });
    throw failure;
  }
  const { mover, queue, offer } = agreed;
  context.tell({ kind: 'ready' });
  const options = { queue, control, timeoutMs: settings.timeoutMs };
  await new ReceiverStream(options, mover, offer.sizeBytes).run(context.signal);
}

async function dialSender(settings: ReceiverSettings, signal: AbortSignal): Promise<NodeSocket> {
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
    if (isFault) throw new StreamFailure('protocol', reason, { cause: error });
    const message = isRefused ? 'ECONNREFUSED (no sender listens there)' : reason;
    throw new MillraceError('MILLRACE_ERR_NOT_RUNNING', message, { cause: error });
  }
}

async function shakeHands(
  settings: ReceiverSettings,
  control: Control,
  socket: NodeSocket,
  { makeQueue }: ReceiverContext,
  signal: AbortSignal,
): Promise<Agreement> {
  const { device, strategy } = settings;
  const wire = device === undefined ? undefined : (await import('../movers/rdma-device.ts')).wireOfDevice(device);
  control.send({ kind: 'hello', wire, strategy });
  const offer = await control.expect('offer', signal);
  if (wire !== undefined && wire !== offer.wire) throw new UsageError(`the sender offers ${offer.wire}, not ${wire}`);
  if (strategy !== undefined && strategy !== offer.strategy && offer.wire !== 'tcp') {
    throw new UsageError(`the sender offers the strategy ${offer.strategy}, not ${strategy}`);
  }
  const queue = await makeQueue(offer.blockBytes, offer.sizeBytes);
  if (offer.wire === 'tcp') {
    control.send({ kind: 'accept', poolBlocks: queue.poolBlocks, queuePairs: [] });
    await control.expect('connect', signal);
    const { remoteAddress = settings.host, remotePort = settings.port } = socket;
    const mover = await openTcpReceiver(queue, remoteAddress, remotePort, offer.token, signal);
    control.send({ kind: 'ready' });
    return { mover, queue, offer };
  }
  const { openRdmaReceiver } = await import('../movers/rdma-strategies.ts');
  const rdma = { device, wire: offer.wire, localAddress: control.localAddress, strategy: offer.strategy };
  using undo = new DisposableStack();
  const mover = undo.use(openRdmaReceiver(queue, rdma));
  control.send({ kind: 'accept', poolBlocks: queue.poolBlocks, queuePairs: mover.offer });
  const { queuePairs } = await control.expect('connect', signal);
  await mover.connect(queuePairs);
  control.send({ kind: 'ready' });
  await mover.prepare(signal);
  undo.move();
  return { mover, queue, offer };
}
