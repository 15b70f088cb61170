// The `tcp` wire: one TCP connection for each pair of QPs. GIDs are IP addresses, and the LID is
// the port to dial.

import { UsageError } from '../../errors.ts';
import { type Address, AGAIN, ip, RangeList, SharedMemory, Socket } from '../../native/index.ts';
import { formatGid, type Gid, gidBytes } from '../../verbs/index.ts';
import { DialRetries } from './dial-retries.ts';
import { FaultSource, isLossy } from './fault-plan.ts';
import { Link, SCRATCH_BYTES } from './link.ts';
import { LinkWire } from './link-wire.ts';
import type { LinkedQp } from './linked-qp.ts';
import {
  decodeHello,
  encodeHello,
  HELLO_BYTES,
  type Hello,
  helloFrom,
  isDialer,
  isExpected,
  MAX_PENDING,
  MAX_PENDING_NS,
} from './rendezvous.ts';
import { STREAM_BYTES, streamEvents, TcpStream } from './tcp-stream.ts';
import type { WireHost } from './wire.ts';
import { WireListener } from './wire-listener.ts';

/** A connection on which hellos are exchanged. */
interface Pending {
  readonly socket: Socket;
  token: number;
  /** The bytes of the other side's hello so far. */
  readonly bytes: Uint8Array;
  received: number;
  /** The QP here, when this side dials. */
  readonly qp: LinkedQp | undefined;
  hello: Hello | undefined;
}

export class TcpWire extends LinkWire {
  readonly gid: Gid;
  readonly lid: number;
  readonly #host: WireHost<LinkedQp>;
  readonly #listener: WireListener<LinkedQp>;
  readonly #memory = SharedMemory.create({ sizeBytes: HELLO_BYTES, name: 'hello' });
  readonly #ranges = new RangeList(64);
  readonly #pending = new Set<Pending>();
  /** Dials under way, by QP. */
  readonly #dials = new Map<LinkedQp, Pending>();
  readonly #retries: DialRetries;
  #links = 0;

  constructor(host: WireHost<LinkedQp>, address: string) {
    super();
    this.#host = host;
    this.#retries = new DialRetries(host);
    const local = ip(address, 0);
    const listener = Socket.stream(local.family);
    try {
      listener.bind(local);
    } catch (error) {
      listener.close();
      throw new UsageError(`open soft-tcp at ${address}: this host has no such address`, {
        cause: error,
      });
    }
    listener.listen();
    const bound = listener.localAddress;
    this.lid = bound.family === 'unix' ? 0 : bound.port;
    this.gid = gidOf(address);
    this.#listener = new WireListener(host, listener, (socket) => this.#accept(socket));
  }

  get needsEvents(): boolean {
    return this.#links > 0 || this.#dials.size > 0;
  }

  establish(qp: LinkedQp): void {
    if (isDialer(this, qp)) this.#dial(qp);
    else for (const pending of this.#pending) this.#match(pending);
  }

  wanted(qp: LinkedQp): void {
    this.#retries.wanted(qp);
  }

  abandon(qp: LinkedQp): void {
    const dial = this.#dials.get(qp);
    if (dial !== undefined) this.#drop(dial);
    this.#dials.delete(qp);
    this.#retries.stop(qp);
  }

  revoked(): void {}

  sleep(): boolean {
    return true;
  }

  close(): void {
    for (const pending of [...this.#pending, ...this.#dials.values()]) this.#drop(pending);
    this.#listener.close();
    this.#memory.close();
    this.#ranges.close();
  }

  #dial(qp: LinkedQp): void {
    const { peerAddress } = qp;
    if (peerAddress === undefined || qp.link !== undefined) return;
    using undo = new DisposableStack();
    try {
      const address = addressOf(peerAddress.path.gid, peerAddress.path.lid ?? 0);
      const socket = undo.use(Socket.stream(address.family));
      socket.connect(address);
      this.#await(qp, socket);
      undo.move();
    } catch {
      // Refused, or there is no descriptor left for it.
      this.#retries.redial(qp, () => this.#dial(qp));
    }
  }

  /** Sends the hello when the dialed socket is connected, and takes the answer. */
  #await(qp: LinkedQp, socket: Socket): void {
    const bytes = new Uint8Array(HELLO_BYTES);
    const pending: Pending = { socket, token: 0, bytes, received: 0, qp, hello: undefined };
    let isHelloSent = false;
    pending.token = this.#host.watch(socket.fd, streamEvents, () => {
      try {
        if (!isHelloSent) {
          socket.finishConnect();
          socket.setOption('noDelay', 1);
          this.#sendHello(socket, helloFrom(this, qp, this.#host.faults));
          isHelloSent = true;
        }
        if (this.#receiveHello(pending)) this.#onAnswer(pending, qp);
      } catch {
        this.#drop(pending);
        this.#dials.delete(qp);
        this.#retries.redial(qp, () => this.#dial(qp));
      }
    });
    this.#dials.set(qp, pending);
  }

  #onAnswer(pending: Pending, qp: LinkedQp): void {
    const { hello } = pending;
    if (hello === undefined || hello.refusal !== 0 || hello.toQp !== qp.number) throw new Error('refused');
    this.#dials.delete(qp);
    this.#attach(pending, qp, hello);
  }

  #accept(accepted: Socket): void {
    if (this.#pending.size >= MAX_PENDING) {
      accepted.close();
      return;
    }
    using undo = new DisposableStack();
    undo.use(accepted);
    accepted.setOption('noDelay', 1);
    const bytes = new Uint8Array(HELLO_BYTES);
    const pending: Pending = { socket: accepted, token: 0, bytes, received: 0, qp: undefined, hello: undefined };
    pending.token = this.#host.watch(accepted.fd, streamEvents, () => {
      try {
        if (this.#receiveHello(pending)) this.#match(pending);
      } catch {
        this.#drop(pending);
      }
    });
    this.#pending.add(pending);
    this.#host.schedule(pending, MAX_PENDING_NS, () => this.#drop(pending));
    undo.move();
  }

  /** Connects a dialer that has sent its hello to its QP, now or when that is ready. */
  #match(pending: Pending): void {
    const { hello } = pending;
    if (hello === undefined) return;
    const qp = this.#host.qp(hello.toQp);
    if (qp === undefined || !isExpected(qp, hello)) return;
    this.#pending.delete(pending);
    this.#host.unschedule(pending);
    try {
      this.#sendHello(pending.socket, helloFrom(this, qp, this.#host.faults));
      this.#attach(pending, qp, hello);
    } catch {
      this.#drop(pending);
    }
  }

  #attach(pending: Pending, qp: LinkedQp, hello: Hello): void {
    const { socket, token } = pending;
    const { faults } = this.#host;
    const lossy = hello.isLossy || isLossy(faults);
    const scratch = SharedMemory.create({ sizeBytes: SCRATCH_BYTES + STREAM_BYTES, name: 'link' });
    const source = faults === undefined ? undefined : new FaultSource(faults, this.#links);
    this.#host.unwatch(socket.fd, token);
    const watching = this.#host.watch(socket.fd, streamEvents, (events) => {
      stream.onEvents(events);
      this.#host.kick(qp);
    });
    const stream = new TcpStream(socket, this.#ranges, scratch, SCRATCH_BYTES, () => {
      this.#links--;
      this.#host.unwatch(socket.fd, watching);
      scratch.close();
      source?.close();
    });
    this.#links++;
    this.#retries.stop(qp);
    qp.attach(new Link(stream, qp, { scratch, hasSums: lossy, delaysAcks: !lossy, faults: source }), lossy, undefined);
  }

  #sendHello(socket: Socket, hello: Hello): void {
    new Uint8Array(this.#memory.buffer).set(encodeHello(hello));
    // The first bytes of a connection always fit.
    if (socket.send(this.#memory, 0, HELLO_BYTES) !== HELLO_BYTES) throw new Error('no room for a hello');
  }

  /**
   * True once the other side's hello is complete; throws on a protocol error, or when the
   * connection has ended.
   */
  #receiveHello(pending: Pending): boolean {
    while (pending.received < HELLO_BYTES) {
      const got = pending.socket.receive(this.#memory, 0, HELLO_BYTES - pending.received);
      if (got === AGAIN) return false;
      if (got === 0) throw new Error('closed');
      pending.bytes.set(new Uint8Array(this.#memory.buffer, 0, got), pending.received);
      pending.received += got;
    }
    const isNew = pending.hello === undefined;
    pending.hello ??= decodeHello(pending.bytes);
    if (pending.hello === undefined) throw new Error('no hello');
    // A dialer sends nothing more before it is answered: more bytes, or the end of the connection,
    // drop it.
    const isWaiting = pending.qp !== undefined || pending.socket.receive(this.#memory, 0, 1) === AGAIN;
    if (!isWaiting) throw new Error('a dialer that did not wait for the answer');
    return isNew;
  }

  #drop(pending: Pending): void {
    this.#pending.delete(pending);
    this.#host.unschedule(pending);
    if (pending.socket.isClosed) return;
    this.#host.unwatch(pending.socket.fd, pending.token);
    pending.socket.close();
  }
}

/** An IPv4 address is mapped, as RoCE does it. */
export function gidOf(address: string): Gid {
  return formatGid(gidBytes(address.includes(':') ? address : `::ffff:${address}`));
}

function addressOf(gid: Gid, port: number): Address {
  const bytes = gidBytes(gid);
  const isMapped = bytes.subarray(0, 10).every((byte) => byte === 0) && bytes[10] === 0xff && bytes[11] === 0xff;
  return ip(isMapped ? bytes.subarray(12).join('.') : gid, port);
}
