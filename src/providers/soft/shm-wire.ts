// The `shm` wire: peers on one machine find each other by unix sockets in a runtime directory and share memory.

import { randomBytes } from 'node:crypto';
import { readdirSync, readlinkSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { SystemError } from '../../errors.ts';
import { EventFd, type Fd, pollEvents, SharedMemory, Socket } from '../../native/index.ts';
import { makeFolder } from '../../system/index.ts';
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
import { Searches } from './search.ts';
import { ShmLink, type ShmParts } from './shm-link.ts';
import { ringBytes } from './shm-ring.ts';
import type { WireHost } from './wire.ts';

/** Of each direction. Pages are taken as they are used. */
const RING_CAPACITY = 1024 * 1024;

export function defaultRuntimeDir(): string {
  const { MILLRACE_RUN_DIR, XDG_RUNTIME_DIR } = process.env;
  const base =
    MILLRACE_RUN_DIR ?? (process.getuid?.() === 0 ? '/run/millrace' : `${XDG_RUNTIME_DIR ?? '/tmp'}/millrace`);
  return join(base, 'soft');
}

/** What comes with a hello: both rings, and the event that wakes the caller. */
interface Offer {
  readonly hello: Hello;
  readonly fds: readonly Fd[];
}

interface Caller {
  readonly socket: Socket;
  token: number;
  offer: Offer | undefined;
}

/** What we offered, while the answer is out. */
interface Call extends ShmCallParts {
  token: number;
}

type ShmCallParts = Omit<ShmParts, 'peerEvent'>;

export class ShmWire extends LinkWire {
  readonly gid: Gid;
  readonly lid = 0;
  readonly #host: WireHost<LinkedQp>;
  readonly #dir: string;
  readonly #path: string;
  readonly #listener: Socket;
  readonly #listenerToken: number;
  readonly #searches: Searches;
  readonly #parked = new Set<Caller>();
  readonly #calls = new Map<LinkedQp, Call>();
  readonly #links = new Map<LinkedQp, ShmLink>();
  #linksMade = 0;

  constructor(host: WireHost<LinkedQp>, dir: string) {
    super();
    this.#host = host;
    this.#dir = dir;
    this.#searches = new Searches(host);
    makeFolder(dir);
    sweep(dir);
    this.gid = formatGid(Uint8Array.of(0xfd, 0x6d, 0x6c, 0x72, ...randomBytes(12)));
    this.#path = socketPath(dir, this.gid);
    this.#listener = Socket.messages();
    // Under its name only once it listens: until then somebody's sweep would take it for dead.
    this.#listener.bind({ family: 'unix', path: `${this.#path}.new` });
    this.#listener.listen(4096);
    renameSync(`${this.#path}.new`, this.#path);
    this.#listenerToken = host.watch(this.#listener.fd, pollEvents.in, () => this.#accept());
  }

  /** Rings are looked at without asking the kernel; only while peers are being found does it have news. */
  get needsEvents(): boolean {
    return this.#calls.size > 0;
  }

  establish(qp: LinkedQp): void {
    if (isDialer(this, qp)) this.#call(qp);
    else for (const caller of this.#parked) this.#match(caller);
  }

  wanted(qp: LinkedQp): void {
    this.#searches.wanted(qp);
  }

  abandon(qp: LinkedQp): void {
    this.#endCall(qp);
    this.#links.delete(qp);
    this.#searches.stop(qp);
  }

  revoked(): void {
    for (const link of this.#links.values()) link.revoked();
  }

  sleep(): boolean {
    let isQuiet = true;
    for (const link of this.#links.values()) isQuiet = link.sleep() && isQuiet;
    return isQuiet;
  }

  close(): void {
    for (const caller of this.#parked) this.#drop(caller);
    for (const qp of this.#calls.keys()) this.#endCall(qp);
    this.#host.unwatch(this.#listener.fd, this.#listenerToken);
    this.#listener.close();
    rmSync(this.#path, { force: true });
  }

  #call(qp: LinkedQp): void {
    const { peerName } = qp;
    if (peerName === undefined || qp.link !== undefined) return;
    using undo = new DisposableStack();
    try {
      const socket = undo.use(Socket.messages());
      socket.connect({ family: 'unix', path: socketPath(this.#dir, peerName.path.gid) });
      if (!isFriend(socket)) throw new Error('somebody else');
      const make = (): SharedMemory => SharedMemory.create({ sizeBytes: ringBytes(RING_CAPACITY), name: 'ring' });
      const parts = {
        socket,
        outgoing: undo.use(make()),
        incoming: undo.use(make()),
        event: undo.use(EventFd.create()),
      };
      const fds = [parts.outgoing.fd, parts.incoming.fd, parts.event.fd];
      if (socket.sendFds(encodeHello(helloFrom(this, qp, this.#host.faults)), fds) !== HELLO_BYTES)
        throw new Error('busy');
      const token = this.#host.watch(socket.fd, pollEvents.in | pollEvents.peerClosed, () => this.#heardBack(qp));
      this.#calls.set(qp, { ...parts, token });
      undo.move();
    } catch {
      // Not there yet, or no longer: called again until the QP's patience ends.
      this.#searches.redial(qp, () => this.#call(qp));
    }
  }

  #heardBack(qp: LinkedQp): void {
    const call = this.#calls.get(qp);
    if (call === undefined) return;
    try {
      const offer = receiveOffer(call.socket, 1);
      if (offer === undefined) return;
      if (offer.hello.refusal !== 0 || offer.hello.toQp !== qp.number) throw new Error('refused');
      this.#calls.delete(qp);
      this.#host.unwatch(call.socket.fd, call.token);
      this.#attach(qp, { ...call, peerEvent: asEvent(offer.fds[0]) }, offer.hello);
    } catch {
      this.#endCall(qp);
      this.#searches.redial(qp, () => this.#call(qp));
    }
  }

  #endCall(qp: LinkedQp): void {
    const call = this.#calls.get(qp);
    if (call === undefined) return;
    this.#calls.delete(qp);
    this.#host.unwatch(call.socket.fd, call.token);
    for (const part of [call.socket, call.outgoing, call.incoming, call.event]) part.close();
  }

  #accept(): void {
    for (let socket = this.#listener.accept(); socket !== undefined; socket = this.#listener.accept()) {
      const accepted = socket;
      if (this.#parked.size >= MAX_PARKED || !isFriend(accepted)) {
        accepted.close();
        continue;
      }
      const caller: Caller = { socket: accepted, token: 0, offer: undefined };
      this.#parked.add(caller);
      this.#host.schedule(caller, PARKED_NS, () => this.#drop(caller));
      caller.token = this.#host.watch(accepted.fd, pollEvents.in | pollEvents.peerClosed, () => {
        try {
          // One hello is all a caller has to say before it gets its QP; a second one, or an end, is its end.
          const offer = receiveOffer(accepted, 3);
          if (offer === undefined) return;
          if (caller.offer !== undefined) throw new Error('a second hello');
          caller.offer = offer;
          this.#match(caller);
        } catch {
          this.#drop(caller);
        }
      });
    }
  }

  #match(caller: Caller): void {
    const { offer, socket } = caller;
    const qp = offer === undefined ? undefined : this.#host.qp(offer.hello.toQp);
    if (offer === undefined || qp === undefined || !isExpected(qp, offer.hello)) return;
    try {
      const [incoming, outgoing, peerEvent] = offer.fds;
      using undo = new DisposableStack();
      const parts = {
        socket,
        // The caller's outgoing ring is our incoming one.
        incoming: undo.use(SharedMemory.open(incoming)),
        outgoing: undo.use(SharedMemory.open(outgoing)),
        peerEvent: undo.use(asEvent(peerEvent)),
        event: undo.use(EventFd.create()),
      };
      socket.sendFds(encodeHello(helloFrom(this, qp, this.#host.faults)), [parts.event.fd]);
      this.#parked.delete(caller);
      this.#host.unschedule(caller);
      this.#host.unwatch(socket.fd, caller.token);
      this.#attach(qp, parts, offer.hello);
      undo.move();
    } catch {
      this.#drop(caller);
    }
  }

  #attach(qp: LinkedQp, parts: ShmParts, hello: Hello): void {
    const host = this.#host;
    const { faults } = host;
    const lossy = hello.isLossy || isLossy(faults);
    const scratch = SharedMemory.create({ sizeBytes: SCRATCH_BYTES, name: 'link' });
    const source = faults === undefined ? undefined : new FaultSource(faults, this.#linksMade++);
    const { socket, event } = parts;
    const stream = new ShmLink(parts, () => {
      host.unwatch(event.fd, eventToken);
      host.unwatch(socket.fd, socketToken);
      scratch.close();
      source?.close();
    });
    const eventToken = host.watch(event.fd, pollEvents.in, () => {
      event.take();
      // Asked for again right here: a program that polled just now may never do so again. The pump then looks once more.
      stream.sleep();
      host.kick(qp);
    });
    const socketToken = host.watch(socket.fd, pollEvents.in | pollEvents.peerClosed, (events) => {
      const isGone = (events & (pollEvents.peerClosed | pollEvents.hangup | pollEvents.error)) !== 0;
      if (isGone || !this.#listen(stream, qp)) {
        stream.peerGone();
        sweepOne(socketPath(this.#dir, hello.fromGid));
      }
      host.kick(qp);
    });
    this.#searches.stop(qp);
    this.#links.set(qp, stream);
    // With faults, everything goes as frames: they are what the plan is about.
    const direct = faults === undefined && !lossy ? stream : undefined;
    qp.attach(new Link(stream, qp, { scratch, hasSums: lossy, faults: source }), lossy, direct);
    stream.sleep();
  }

  #listen(stream: ShmLink, qp: LinkedQp): boolean {
    try {
      return stream.listen(qp, this.#host.regions);
    } catch {
      return false;
    }
  }

  #drop(caller: Caller): void {
    this.#parked.delete(caller);
    this.#host.unschedule(caller);
    for (const fd of caller.offer?.fds ?? []) fd.close();
    if (caller.socket.isClosed) return;
    this.#host.unwatch(caller.socket.fd, caller.token);
    caller.socket.close();
  }
}

/** Undefined when nothing is there; throws when it is not what was expected, or the other side has gone. */
function receiveOffer(socket: Socket, fdCount: number): Offer | undefined {
  const bytes = new Uint8Array(HELLO_BYTES);
  const got = socket.receiveFds(bytes);
  if (got === undefined) return undefined;
  const hello = got.bytes === HELLO_BYTES ? decodeHello(bytes) : undefined;
  if (hello !== undefined && got.fds.length === fdCount) return { hello, fds: got.fds };
  for (const fd of got.fds) fd.close();
  throw new Error('no hello');
}

/** What a peer passes could be anything; writing to a full pipe would stop this process. */
function asEvent(fd: Fd): EventFd {
  if (readlinkSync(`/proc/self/fd/${fd.fd}`) !== 'anon_inode:[eventfd]') throw new Error('no eventfd');
  return EventFd.adopt(fd.release());
}

/** Only processes of the same user share memory with each other. */
function isFriend(socket: Socket): boolean {
  return socket.peerCredentials.uid === process.geteuid?.();
}

function socketPath(dir: string, gid: Gid): string {
  return join(dir, `${Buffer.from(gidBytes(gid)).toString('hex')}.sock`);
}

/** Sockets that nobody listens on were left by the dead. */
function sweep(dir: string): void {
  for (const name of readdirSync(dir)) if (name.endsWith('.sock')) sweepOne(join(dir, name));
}

function sweepOne(path: string): void {
  using socket = Socket.messages();
  try {
    socket.connect({ family: 'unix', path });
  } catch (error) {
    if (error instanceof SystemError && error.code === 'ECONNREFUSED') rmSync(path, { force: true });
  }
}
