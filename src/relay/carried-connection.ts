// A connection that is carried: two sockets whose bytes, ends and resets each become the other's.

import { SystemError } from '../errors.ts';
import type { Dying, Resumable } from '../loop/index.ts';
import { AGAIN, type Socket } from '../native/index.ts';
import { Leg, type LegOwner } from './leg.ts';
import type { Pump } from './pump.ts';

/** Buffers that one direction may move before the others of the lane have their turn. */
const MAX_ROUNDS = 4;

/** closed: both sides ended. reset: one of them did not. unreachable: the server never answered, and `error` is why. */
export type ConnectionEnd =
  | { readonly kind: 'closed' }
  | { readonly kind: 'reset'; readonly by: 'client' | 'server' | 'relay' }
  | { readonly kind: 'unreachable'; readonly error: SystemError };

export class CarriedConnection implements LegOwner, Resumable, Dying {
  readonly client: Leg;
  readonly server: Leg;
  readonly #pump: Pump;
  readonly #onEnd: (end: ConnectionEnd) => void;
  #isClosed = false;
  #isQueued = false;

  constructor(pump: Pump, client: Socket, server: Socket, isConnecting: boolean, onEnd: (end: ConnectionEnd) => void) {
    using undo = new DisposableStack();
    undo.defer(() => client.close());
    undo.defer(() => server.close());
    this.#pump = pump;
    this.#onEnd = onEnd;
    this.client = new Leg(pump.lane, client, this);
    undo.defer(() => this.client.close(true));
    this.server = new Leg(pump.lane, server, this);
    this.server.isConnecting = isConnecting;
    undo.move();
  }

  get isConnecting(): boolean {
    return this.server.isConnecting;
  }

  /** Moves what can be moved, both ways, and draws the consequences. */
  advance(): void {
    if (this.#isClosed) return;
    const { client, server } = this;
    if (server.isConnecting && !this.#finishConnect()) return;
    this.#move(client, server);
    this.#move(server, client);
    if (client.hasFailed || server.hasFailed) this.#die();
    else if (client.isEnded && server.isEnded) this.#close(false, { kind: 'closed' });
  }

  resume(): void {
    this.#isQueued = false;
    this.advance();
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  deliverLast(): number {
    this.advance();
    if (this.#isClosed) return 0;
    // Until the server has answered there is nobody who could have stopped.
    return this.server.isConnecting ? Number.NaN : this.#waitingBytes();
  }

  giveUp(): void {
    this.#reset();
  }

  /** Resets both sides now. */
  abort(): void {
    if (!this.#isClosed) this.#close(true, { kind: 'reset', by: 'relay' });
  }

  /** False while it goes on, or when it has failed and everything is over. */
  #finishConnect(): boolean {
    const { server } = this;
    // The news is the client's: it waits, with what it has sent, until the server has answered.
    if (!server.isWritable) return false;
    try {
      server.hasFailed = !server.socket.finishConnect();
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      this.#close(true, { kind: 'unreachable', error });
      return false;
    }
    server.isConnecting = false;
    // What else the event said was not looked at.
    server.isReadable = true;
    server.mustDrain = true;
    return true;
  }

  #move(from: Leg, to: Leg): void {
    const { bufferBytes } = this.#pump.pool;
    for (let round = 0; !to.hasFailed; round++) {
      if (from.held !== undefined && !this.#flush(from, to)) return;
      if (from.isEnded || !from.isReadable || !to.isWritable) return;
      if (round === MAX_ROUNDS) {
        this.#waitForTurn();
        return;
      }
      const { memory, offset } = this.#pump.scratch;
      const count = receive(from, memory, offset, bufferBytes);
      if (count === AGAIN) {
        from.isReadable = false;
        from.mustDrain = false;
        return;
      }
      if (count <= 0) {
        from.isEnded = true;
        if (!from.hasFailed) shut(to);
        return;
      }
      this.#count(from, count);
      if (count < bufferBytes && !from.mustDrain) from.isReadable = false;
      const sent = send(to, memory, offset, count);
      if (sent < count) this.#hold(from, to, Math.max(sent, 0), count);
    }
    this.#drop(from);
  }

  /** True when nothing is held any more. */
  #flush(from: Leg, to: Leg): boolean {
    const { held } = from;
    if (held === undefined) return true;
    if (!to.isWritable) return false;
    const sent = send(to, held.memory, held.offset + from.heldStart, from.heldEnd - from.heldStart);
    if (sent > 0) from.heldStart += sent;
    if (from.heldStart < from.heldEnd) {
      to.isWritable = false;
      return false;
    }
    this.#drop(from);
    return true;
  }

  #hold(from: Leg, to: Leg, start: number, end: number): void {
    from.held = this.#pump.keepScratch();
    from.heldStart = start;
    from.heldEnd = end;
    to.isWritable = false;
  }

  #drop(from: Leg): void {
    if (from.held === undefined) return;
    this.#pump.pool.give(from.held);
    from.held = undefined;
  }

  #count(from: Leg, count: number): void {
    from.receivedBytes += count;
    const { totals } = this.#pump;
    if (from === this.client) totals.bytesToServer += count;
    else totals.bytesToClient += count;
  }

  #waitForTurn(): void {
    if (this.#isQueued) return;
    this.#isQueued = true;
    this.#pump.lane.again(this);
  }

  /**
   * A leg was reset. What it sent before is delivered as far as the other side takes it, as by plain TCP, where it would
   * be in the receiver's queue already; then the other side is reset.
   */
  #die(): void {
    const { client, server } = this;
    const [dead, other] = client.hasFailed ? [client, server] : [server, client];
    const isDelivered = dead.isEnded && dead.held === undefined && (other.isShut || this.#waitingBytes() === 0);
    if (other.hasFailed || isDelivered) this.#reset();
    else this.#pump.lastWords.lookAfter(this);
  }

  /** Bytes that were received and have not reached the other side yet: a reset may overtake what has only left. */
  #waitingBytes(): number {
    const { client, server } = this;
    const [dead, other] = client.hasFailed ? [client, server] : [server, client];
    return dead.heldBytes + other.socket.unacknowledgedBytes;
  }

  #reset(): void {
    this.#close(true, { kind: 'reset', by: this.client.hasFailed ? 'client' : 'server' });
  }

  #close(isAbrupt: boolean, end: ConnectionEnd): void {
    this.#isClosed = true;
    this.#drop(this.client);
    this.#drop(this.server);
    // First: as soon as a socket is closed, its port may be somebody else's.
    this.#onEnd(end);
    this.client.close(isAbrupt);
    this.server.close(isAbrupt);
  }
}

function receive(from: Leg, memory: Parameters<Socket['receive']>[0], offset: number, length: number): number {
  try {
    return from.socket.receive(memory, offset, length);
  } catch (error) {
    return failed(from, error);
  }
}

function send(to: Leg, memory: Parameters<Socket['send']>[0], offset: number, length: number): number {
  try {
    return to.socket.send(memory, offset, length);
  } catch (error) {
    return failed(to, error);
  }
}

function shut(to: Leg): void {
  try {
    to.socket.shutdownSend();
    to.isShut = true;
  } catch (error) {
    failed(to, error);
  }
}

/** An error of the connection is news about the peer; any other is ours. */
function failed(leg: Leg, error: unknown): number {
  if (!(error instanceof SystemError)) throw error;
  leg.hasFailed = true;
  return 0;
}
