// The engine of a sender: listens, comes to terms with the first receiver that fits, and sends until all is read.

import { randomBytes, timingSafeEqual } from 'node:crypto';
import { lookup } from 'node:dns/promises';
import type { Socket as NodeSocket } from 'node:net';
import { UsageError } from '../../errors.ts';
import type { Socket } from '../../native/index.ts';
import type { BlockQueue } from '../stream/index.ts';
import { Control } from './control.ts';
import type { FromEngine, SenderSettings } from './engine-messages.ts';
import { Listener } from './listener.ts';
import type { Mover } from './mover.ts';
import type { MessageOf, Offer, Wire } from './protocol.ts';
import { SenderSession } from './session.ts';
import { failureOf, StreamFailure } from './stream-failure.ts';
import { keepUnderWayFew } from './tcp-connection.ts';
import { TcpSender } from './tcp-movers.ts';

/** Those who have not come to terms yet. */
const MAX_CALLERS = 64;

export interface EngineCalls {
  readonly tell: (message: FromEngine) => void;
  /** Aborted when the program closes the stream. */
  readonly signal: AbortSignal;
}

interface Met {
  readonly control: Control;
  readonly mover: Mover;
}

/** Resolves when everything is read; throws a StreamFailure when the stream ends before. */
export async function sendStream(settings: SenderSettings, queue: BlockQueue, calls: EngineCalls): Promise<void> {
  const meeting = await Meeting.open(settings, queue, calls);
  const { control, mover } = await meeting.met();
  const { signal } = calls;
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const session = new SenderSession(
    {
      queue,
      control,
      timeoutMs: settings.timeoutMs,
      onEnd: (failure) => (failure === undefined ? resolve() : reject(failure)),
    },
    mover,
  );
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

/** The time until a receiver was found. */
class Meeting {
  readonly #settings: SenderSettings;
  readonly #queue: BlockQueue;
  readonly #calls: EngineCalls;
  readonly #wire: Wire;
  readonly #listener: Listener;
  readonly #met = Promise.withResolvers<Met>();
  /** Data connections that are waited for, by token. */
  readonly #waiting = new Map<string, (socket: Socket) => void>();
  readonly #controls = new Set<Control>();
  /** Somebody is about to get the stream. */
  #isTaken = false;

  static async open(settings: SenderSettings, queue: BlockQueue, calls: EngineCalls): Promise<Meeting> {
    const host = settings.host === undefined ? undefined : (await lookup(settings.host)).address;
    const wire = settings.device === undefined ? 'tcp' : await wireOf(settings.device);
    return new Meeting(settings, queue, calls, wire, host);
  }

  private constructor(
    settings: SenderSettings,
    queue: BlockQueue,
    calls: EngineCalls,
    wire: Wire,
    host: string | undefined,
  ) {
    this.#settings = settings;
    this.#queue = queue;
    this.#calls = calls;
    this.#wire = wire;
    this.#listener = new Listener(host, settings.port, settings.security, settings.peerName, {
      onControl: (socket) => void this.#greet(socket),
      onData: (socket, token) => this.#onData(socket, token),
      onRefused: (reason) => calls.tell({ kind: 'refused', reason }),
    });
    calls.tell({ kind: 'listening', port: this.#listener.port });
  }

  async met(): Promise<Met> {
    const { signal } = this.#calls;
    const onAbort = (): void => this.#met.reject(signal.reason);
    signal.addEventListener('abort', onAbort);
    if (signal.aborted) onAbort();
    try {
      const met = await this.#met.promise;
      this.#controls.delete(met.control);
      return met;
    } finally {
      signal.removeEventListener('abort', onAbort);
      this.#listener.close();
      for (const control of this.#controls) control.end({ kind: 'refused', reason: 'another receiver has the stream' });
    }
  }

  /** One caller, from hello to ready. Whatever is wrong with it, the next one may do better. */
  async #greet(socket: NodeSocket): Promise<void> {
    const control = new Control(socket);
    if (this.#controls.size >= MAX_CALLERS) {
      control.end({ kind: 'refused', reason: 'too many callers' });
      return;
    }
    this.#controls.add(control);
    const limit = AbortSignal.timeout(this.#settings.timeoutMs);
    const signal = AbortSignal.any([limit, this.#calls.signal]);
    let hasStream = false;
    try {
      const offer = this.#offerTo(await control.expect('hello', signal));
      control.send({ kind: 'offer', ...offer });
      const accept = await control.expect('accept', signal);
      if (this.#isTaken) throw new UsageError('another receiver has the stream');
      this.#isTaken = hasStream = true;
      const mover = await this.#connect(control, offer, accept, signal);
      this.#met.resolve({ control, mover });
    } catch (error) {
      if (hasStream) this.#isTaken = false;
      this.#controls.delete(control);
      const isLate = limit.aborted && !this.#calls.signal.aborted;
      const { kind, message } = isLate ? new StreamFailure('nonsense', 'it took too long') : failureOf(error);
      control.end(kind === 'died' ? undefined : { kind: 'refused', reason: message });
      this.#calls.tell({ kind: 'refused', reason: `a receiver at ${control.peer}: ${message}` });
    }
  }

  #offerTo({ wire, strategy }: MessageOf<'hello'>): Offer {
    const own = this.#settings.strategy ?? 'pool';
    if (wire !== undefined && wire !== this.#wire) {
      throw new UsageError(`the receiver wants to receive by ${wire}, and this sender sends by ${this.#wire}`);
    }
    if (strategy !== undefined && strategy !== own && this.#wire !== 'tcp') {
      throw new UsageError(`the receiver wants the strategy ${strategy}, and this sender has ${own}`);
    }
    const { sizeBytes, blockBytes, poolBlocks } = this.#queue;
    const token = randomBytes(16).toString('hex');
    return { sizeBytes, blockBytes, poolBlocks, wire: this.#wire, strategy: own, token };
  }

  async #connect(
    control: Control,
    { strategy, token }: Offer,
    accept: MessageOf<'accept'>,
    signal: AbortSignal,
  ): Promise<Mover> {
    if (this.#wire === 'tcp') {
      const socket = await this.#dataConnection(control, token, signal);
      keepUnderWayFew(socket);
      return new TcpSender(this.#queue, socket);
    }
    const { openVerbsSender } = await import('./verbs-sides.ts');
    const { device } = this.#settings;
    const place = { device, wire: this.#wire, localAddress: control.localAddress, strategy };
    using undo = new DisposableStack();
    const mover = undo.use(openVerbsSender(this.#queue, place, accept.poolBlocks));
    await mover.connect(accept.path);
    control.send({ kind: 'connect', path: mover.offer });
    await control.expect('ready', signal);
    await mover.prepare(signal);
    undo.move();
    return mover;
  }

  async #dataConnection(control: Control, token: string, signal: AbortSignal): Promise<Socket> {
    const { promise, resolve } = Promise.withResolvers<Socket>();
    this.#waiting.set(token, resolve);
    try {
      control.send({ kind: 'connect', path: [] });
      await control.expect('ready', signal);
      return await Promise.race([promise, rejectionOf(signal)]);
    } catch (error) {
      // It may have come all the same.
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
  const { wireOfDevice } = await import('./verbs-device.ts');
  return wireOfDevice(device);
}

function rejectionOf(signal: AbortSignal): Promise<never> {
  const { promise, reject } = Promise.withResolvers<never>();
  if (signal.aborted) reject(signal.reason);
  else signal.addEventListener('abort', () => reject(signal.reason), { once: true });
  return promise;
}
