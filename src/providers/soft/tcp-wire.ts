// The `tcp` wire: one TCP connection for each pair of QPs. GIDs are IP addresses, and the LID is the port to call.

import { UsageError } from '../../errors.ts';
import { type Address, AGAIN, ip, pollEvents, RangeList, SharedMemory, Socket } from '../../native/index.ts';
import { formatGid, type Gid, gidBytes } from '../../verbs/index.ts';
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
  MAX_PARKED,
  PARKED_NS,
} from './meeting.ts';
import type { Pieces } from './pieces.ts';
import { Searches } from './search.ts';
import type { ByteStream } from './stream.ts';
import type { WireHost } from './wire.ts';

const EVENTS = pollEvents.in | pollEvents.out | pollEvents.peerClosed | pollEvents.edge;

class TcpStream implements ByteStream {
  readonly #socket: Socket;
  readonly #ranges: RangeList;
  readonly #onClose: () => void;

  constructor(socket: Socket, ranges: RangeList, onClose: () => void) {
    this.#socket = socket;
    this.#ranges = ranges;
    this.#onClose = onClose;
  }

  /** Events say so, and pump() is only called then. */
  get mayReceive(): boolean {
    return false;
  }

  send(pieces: Pieces, skip: number): number {
    let rows = 0;
    let passed = 0;
    for (let piece = 0; piece < pieces.count && rows < this.#ranges.capacity; piece++) {
      const length = pieces.lengths[piece];
      const from = Math.max(0, skip - passed);
      passed += length;
      if (from >= length) continue;
      this.#ranges.set(rows++, pieces.memories[piece], pieces.offsets[piece] + from, length - from);
    }
    return this.#socket.sendRanges(this.#ranges, rows);
  }

  receive(memory: SharedMemory, offset: number, length: number): number {
    return this.#socket.receive(memory, offset, length);
  }

  get waitingBytes(): number {
    return this.#socket.receivableBytes;
  }

  flush(): void {}

  close(): void {
    this.#onClose();
    this.#socket.close();
  }
}

/** A connection on which hellos are being said. */
interface Caller {
  readonly socket: Socket;
  token: number;
  /** Bytes of the other side's hello so far, at the place in the wire's memory that belongs to this caller. */
  readonly bytes: Uint8Array;
  received: number;
  /** The QP here, when we called. */
  readonly qp: LinkedQp | undefined;
  hello: Hello | undefined;
}

export class TcpWire extends LinkWire {
  readonly gid: Gid;
  readonly lid: number;
  readonly #host: WireHost<LinkedQp>;
  readonly #listener: Socket;
  readonly #listenerToken: number;
  readonly #memory = SharedMemory.create({ sizeBytes: HELLO_BYTES, name: 'hello' });
  readonly #ranges = new RangeList(64);
  readonly #parked = new Set<Caller>();
  /** Calls under way, by QP. */
  readonly #calls = new Map<LinkedQp, Caller>();
  readonly #searches: Searches;
  #links = 0;

  constructor(host: WireHost<LinkedQp>, address: string) {
    super();
    this.#host = host;
    this.#searches = new Searches(host);
    const local = ip(address, 0);
    this.#listener = Socket.stream(local.family);
    try {
      this.#listener.bind(local);
    } catch (error) {
      this.#listener.close();
      throw new UsageError(`open soft-tcp at ${address}: this host has no such address`, {
        cause: error,
      });
    }
    this.#listener.listen();
    const bound = this.#listener.localAddress;
    this.lid = bound.family === 'unix' ? 0 : bound.port;
    this.gid = gidOf(address);
    this.#listenerToken = host.watch(this.#listener.fd, pollEvents.in, () => this.#accept());
  }

  get needsEvents(): boolean {
    return this.#links > 0 || this.#calls.size > 0;
  }

  establish(qp: LinkedQp): void {
    if (isDialer(this, qp)) this.#call(qp);
    else for (const caller of this.#parked) this.#match(caller);
  }

  wanted(qp: LinkedQp): void {
    this.#searches.wanted(qp);
  }

  abandon(qp: LinkedQp): void {
    const call = this.#calls.get(qp);
    if (call !== undefined) this.#drop(call);
    this.#calls.delete(qp);
    this.#searches.stop(qp);
  }

  revoked(): void {}

  sleep(): boolean {
    return true;
  }

  close(): void {
    for (const caller of [...this.#parked, ...this.#calls.values()]) this.#drop(caller);
    this.#host.unwatch(this.#listener.fd, this.#listenerToken);
    this.#listener.close();
    this.#memory.close();
    this.#ranges.close();
  }

  #call(qp: LinkedQp): void {
    const { peerName } = qp;
    if (peerName === undefined || qp.link !== undefined) return;
    const address = addressOf(peerName.path.gid, peerName.path.lid ?? 0);
    const socket = Socket.stream(address.family);
    const caller: Caller = { socket, token: 0, bytes: new Uint8Array(HELLO_BYTES), received: 0, qp, hello: undefined };
    try {
      socket.connect(address);
    } catch {
      socket.close();
      this.#searches.redial(qp, () => this.#call(qp));
      return;
    }
    this.#calls.set(qp, caller);
    let isGreeted = false;
    caller.token = this.#host.watch(socket.fd, EVENTS, () => {
      try {
        if (!isGreeted) {
          socket.finishConnect();
          socket.setOption('noDelay', 1);
          this.#say(socket, helloFrom(this, qp, this.#host.faults));
          isGreeted = true;
        }
        if (this.#listen(caller)) this.#answered(caller, qp);
      } catch {
        this.#drop(caller);
        this.#calls.delete(qp);
        this.#searches.redial(qp, () => this.#call(qp));
      }
    });
  }

  #answered(caller: Caller, qp: LinkedQp): void {
    const { hello } = caller;
    if (hello === undefined || hello.refusal !== 0 || hello.toQp !== qp.number) throw new Error('refused');
    this.#calls.delete(qp);
    this.#attach(caller, qp, hello);
  }

  #accept(): void {
    for (let socket = this.#listener.accept(); socket !== undefined; socket = this.#listener.accept()) {
      const accepted = socket;
      if (this.#parked.size >= MAX_PARKED) {
        accepted.close();
        continue;
      }
      accepted.setOption('noDelay', 1);
      const bytes = new Uint8Array(HELLO_BYTES);
      const caller: Caller = { socket: accepted, token: 0, bytes, received: 0, qp: undefined, hello: undefined };
      this.#parked.add(caller);
      this.#host.schedule(caller, PARKED_NS, () => this.#drop(caller));
      caller.token = this.#host.watch(accepted.fd, EVENTS, () => {
        try {
          if (this.#listen(caller)) this.#match(caller);
        } catch {
          this.#drop(caller);
        }
      });
    }
  }

  /** A caller that has said hello gets its QP, now or when that is ready. */
  #match(caller: Caller): void {
    const { hello } = caller;
    if (hello === undefined) return;
    const qp = this.#host.qp(hello.toQp);
    if (qp === undefined || !isExpected(qp, hello)) return;
    this.#parked.delete(caller);
    this.#host.unschedule(caller);
    try {
      this.#say(caller.socket, helloFrom(this, qp, this.#host.faults));
      this.#attach(caller, qp, hello);
    } catch {
      this.#drop(caller);
    }
  }

  #attach(caller: Caller, qp: LinkedQp, hello: Hello): void {
    const { socket, token } = caller;
    const { faults } = this.#host;
    const lossy = hello.isLossy || isLossy(faults);
    const scratch = SharedMemory.create({ sizeBytes: SCRATCH_BYTES, name: 'link' });
    const source = faults === undefined ? undefined : new FaultSource(faults, this.#links);
    this.#host.unwatch(socket.fd, token);
    const watching = this.#host.watch(socket.fd, EVENTS, () => this.#host.kick(qp));
    const stream = new TcpStream(socket, this.#ranges, () => {
      this.#links--;
      this.#host.unwatch(socket.fd, watching);
      scratch.close();
      source?.close();
    });
    this.#links++;
    this.#searches.stop(qp);
    qp.attach(new Link(stream, qp, { scratch, hasSums: lossy, faults: source }), lossy, undefined);
  }

  #say(socket: Socket, hello: Hello): void {
    new Uint8Array(this.#memory.buffer).set(encodeHello(hello));
    // The first bytes of a connection always fit.
    if (socket.send(this.#memory, 0, HELLO_BYTES) !== HELLO_BYTES) throw new Error('no room for a hello');
  }

  /** True once the other side's hello is complete; throws when it is none, or the connection ended. */
  #listen(caller: Caller): boolean {
    while (caller.received < HELLO_BYTES) {
      const got = caller.socket.receive(this.#memory, 0, HELLO_BYTES - caller.received);
      if (got === AGAIN) return false;
      if (got === 0) throw new Error('closed');
      caller.bytes.set(new Uint8Array(this.#memory.buffer, 0, got), caller.received);
      caller.received += got;
    }
    const isNew = caller.hello === undefined;
    caller.hello ??= decodeHello(caller.bytes);
    if (caller.hello === undefined) throw new Error('no hello');
    // Who called has nothing more to say before it is answered: more bytes, or the end, are its end.
    const isWaiting = caller.qp !== undefined || caller.socket.receive(this.#memory, 0, 1) === AGAIN;
    if (!isWaiting) throw new Error('a caller that did not wait');
    return isNew;
  }

  #drop(caller: Caller): void {
    this.#parked.delete(caller);
    this.#host.unschedule(caller);
    if (caller.socket.isClosed) return;
    this.#host.unwatch(caller.socket.fd, caller.token);
    caller.socket.close();
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
