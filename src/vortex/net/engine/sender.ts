// The engine of a sender: listens, accepts the first receiver that fits, and sends until everything
// is read.

import { randomBytes, timingSafeEqual } from 'node:crypto';
import { lookup } from 'node:dns/promises';
import type { Socket as NodeSocket } from 'node:net';
import { UsageError } from '../../../errors.ts';
import type { Socket } from '../../../native/index.ts';
import type { BlockQueue } from '../../stream/index.ts';
import { Control } from '../control.ts';
import { Listener } from '../listener.ts';
import type { Mover } from '../movers/mover.ts';
import { limitSendBuffer } from '../movers/tcp-connection.ts';
import { TcpSender } from '../movers/tcp-mover.ts';
import type { MessageOfKind, Offer, Wire } from '../protocol.ts';
import { failureOf, StreamFailure } from '../stream-failure.ts';
import type { FromEngine, SenderSettings } from './messages.ts';
import { SenderStream } from './stream.ts';

/** Control connections whose handshake is not over. */
const MAX_HANDSHAKES = 64;

export interface EngineContext {
  readonly tell: (message: FromEngine) => void;
  /** Aborted when the program closes the stream. */
  readonly signal: AbortSignal;
}

interface AcceptedReceiver {
  readonly control: Control;
  readonly mover: Mover;
}

/** Resolves when everything is read; throws a StreamFailure when the stream ends before. */
export async function sendStream(settings: SenderSettings, queue: BlockQueue, context: EngineContext): Promise<void> {
  const acceptor = await ReceiverAcceptor.open(settings, queue, context);
  const { control, mover } = await acceptor.accepted();
  context.tell({ kind: 'ready' });
  await new SenderStream({ queue, control, timeoutMs: settings.timeoutMs }, mover).run(context.signal);
}

/** Listens until one receiver is accepted. */
class ReceiverAcceptor {
  readonly #settings: SenderSettings;
  readonly #queue: BlockQueue;
  readonly #context: EngineContext;
  readonly #wire: Wire;
  readonly #listener: Listener;
  readonly #accepted = Promise.withResolvers<AcceptedReceiver>();
  /** Handshakes that wait for their data connection, by token. */
  readonly #waiting = new Map<string, (socket: Socket) => void>();
  readonly #controls = new Set<Control>();
  /** A handshake has got as far as connecting: the others are refused. */
  #isTaken = false;

  static async open(settings: SenderSettings, queue: BlockQueue, context: EngineContext): Promise<ReceiverAcceptor> {
    const host = settings.host === undefined ? undefined : (await lookup(settings.host)).address;
    const wire = settings.device === undefined ? 'tcp' : await wireOf(settings.device);
    return new ReceiverAcceptor(settings, queue, context, wire, host);
  }

  private constructor(
    settings: SenderSettings,
    queue: BlockQueue,
    context: EngineContext,
    wire: Wire,
    host: string | undefined,
  ) {
    this.#settings = settings;
    this.#queue = queue;
    this.#context = context;
    this.#wire = wire;
    this.#listener = new Listener(host, settings.port, settings.security, settings.peerName, {
      onControl: (socket) => void this.#shakeHands(socket),
      onData: (socket, token) => this.#onData(socket, token),
      onRefused: (reason) => context.tell({ kind: 'refused', reason }),
    });
    context.tell({ kind: 'listening', port: this.#listener.port });
  }

  async accepted(): Promise<AcceptedReceiver> {
    const { signal } = this.#context;
    const onAbort = (): void => this.#accepted.reject(signal.reason);
    signal.addEventListener('abort', onAbort);
    if (signal.aborted) onAbort();
    try {
      const accepted = await this.#accepted.promise;
      this.#controls.delete(accepted.control);
      return accepted;
    } finally {
      signal.removeEventListener('abort', onAbort);
      this.#listener.close();
      for (const control of this.#controls) control.end({ kind: 'refused', reason: 'another receiver has the stream' });
    }
  }

  /**
   * The handshake with one receiver, from hello to ready. If it fails, the sender goes on
   * listening.
   */
  async #shakeHands(socket: NodeSocket): Promise<void> {
    const control = new Control(socket);
    if (this.#controls.size >= MAX_HANDSHAKES) {
      control.end({ kind: 'refused', reason: 'too many receivers connect at the same time' });
      return;
    }
    this.#controls.add(control);
    const limit = AbortSignal.timeout(this.#settings.timeoutMs);
    const signal = AbortSignal.any([limit, this.#context.signal]);
    let hasStream = false;
    try {
      const offer = this.#offerTo(await control.expect('hello', signal));
      control.send(offer);
      const accept = await control.expect('accept', signal);
      if (this.#isTaken) throw new UsageError('another receiver has the stream');
      this.#isTaken = hasStream = true;
      const mover = await this.#connect(control, offer, accept, signal);
      this.#accepted.resolve({ control, mover });
    } catch (error) {
      if (hasStream) this.#isTaken = false;
      this.#controls.delete(control);
      const isLate = limit.aborted && !this.#context.signal.aborted;
      const { kind, message } = isLate
        ? new StreamFailure('protocol', 'the receiver took too long to answer')
        : failureOf(error);
      control.end(kind === 'died' ? undefined : { kind: 'refused', reason: message });
      this.#context.tell({ kind: 'refused', reason: `a receiver at ${control.peer}: ${message}` });
    }
  }

  #offerTo({ wire, strategy }: MessageOfKind<'hello'>): Offer {
    const own = this.#settings.strategy ?? 'pool';
    if (wire !== undefined && wire !== this.#wire) {
      throw new UsageError(`the receiver wants the wire ${wire}, and this sender has ${this.#wire}`);
    }
    if (strategy !== undefined && strategy !== own && this.#wire !== 'tcp') {
      throw new UsageError(`the receiver wants the strategy ${strategy}, and this sender has ${own}`);
    }
    const { sizeBytes, blockBytes, poolBlocks } = this.#queue;
    const token = randomBytes(16).toString('hex');
    return { kind: 'offer', sizeBytes, blockBytes, poolBlocks, wire: this.#wire, strategy: own, token };
  }

  async #connect(
    control: Control,
    { strategy, token }: Offer,
    accept: MessageOfKind<'accept'>,
    signal: AbortSignal,
  ): Promise<Mover> {
    if (this.#wire === 'tcp') {
      const socket = await this.#dataConnection(control, token, signal);
      limitSendBuffer(socket);
      return new TcpSender(this.#queue, socket);
    }
    const { openRdmaSender } = await import('../movers/rdma-strategies.ts');
    const { device } = this.#settings;
    const rdma = { device, wire: this.#wire, localAddress: control.localAddress, strategy };
    using undo = new DisposableStack();
    const mover = undo.use(openRdmaSender(this.#queue, rdma, accept.poolBlocks));
    await mover.connect(accept.queuePairs);
    control.send({ kind: 'connect', queuePairs: mover.offer });
    await control.expect('ready', signal);
    await mover.prepare(signal);
    undo.move();
    return mover;
  }

  async #dataConnection(control: Control, token: string, signal: AbortSignal): Promise<Socket> {
    const { promise, resolve } = Promise.withResolvers<Socket>();
    this.#waiting.set(token, resolve);
    try {
      control.send({ kind: 'connect', queuePairs: [] });
      await control.expect('ready', signal);
      return await Promise.race([promise, rejectionOf(signal)]);
    } catch (error) {
      // It may arrive all the same.
      void promise.then((socket) => socket.close());
      throw error;
    } finally {
      this.#waiting.delete(token);
    }
  }

  #onData(socket: Socket, token: string): boolean {
    for (const [expected, resolve] of this.#waiting) {
      if (!timingSafeEqual(Buffer.from(expected), Buffer.from(token))) continue;
      resolve(socket);
      return true;
    }
    return false;
  }
}

async function wireOf(device: string): Promise<Wire> {
  const { wireOfDevice } = await import('../movers/rdma-device.ts');
  return wireOfDevice(device);
}

function rejectionOf(signal: AbortSignal): Promise<never> {
  const { promise, reject } = Promise.withResolvers<never>();
  if (signal.aborted) reject(signal.reason);
  else signal.addEventListener('abort', () => reject(signal.reason), { once: true });
  return promise;
}
