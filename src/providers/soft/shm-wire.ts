// The `shm` wire: peers on one machine connect by unix sockets in a runtime directory and share
// memory.

import { randomBytes } from 'node:crypto';
import { readdirSync, readlinkSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { SystemError } from '../../errors.ts';
import { EventFd, type Fd, pollEvents, SharedMemory, Socket } from '../../native/index.ts';
import { makeRunFolder } from '../../system/index.ts';
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
import { ShmLink, type ShmParts } from './shm-link.ts';
import { ringBytes } from './shm-ring.ts';
import type { WireHost } from './wire.ts';
import { WireListener } from './wire-listener.ts';

/** Of each direction. Pages are allocated when they are first written. */
const RING_CAPACITY = 1024 * 1024;

export function defaultRuntimeDir(): string {
  const { MILLRACE_RUN_DIR, XDG_RUNTIME_DIR } = process.env;
  const uid = process.getuid?.() ?? 0;
  const base =
    MILLRACE_RUN_DIR ??
    (uid === 0
      ? '/run/millrace'
      : XDG_RUNTIME_DIR === undefined
        ? `/tmp/millrace-${uid}`
        : `${XDG_RUNTIME_DIR}/millrace`);
  return join(base, 'soft');
}

/** A hello and its descriptors: both rings, and the event that wakes the dialer. */
interface Offer {
  readonly hello: Hello;
  readonly fds: readonly Fd[];
}

/** An accepted connection whose QP is not ready yet. */
interface Pending {
  readonly socket: Socket;
  token: number;
  offer: Offer | undefined;
}

/** What the dialer offered, until the acceptor answers. */
interface Dial extends DialParts {
  token: number;
}

type DialParts = Omit<ShmParts, 'peerEvent'>;

export class ShmWire extends LinkWire {
  readonly gid: Gid;
  readonly lid = 0;
  readonly #host: WireHost<LinkedQp>;
  readonly #dir: string;
  readonly #path: string;
  readonly #listener: WireListener<LinkedQp>;
  readonly #retries: DialRetries;
  readonly #pending = new Set<Pending>();
  readonly #dials = new Map<LinkedQp, Dial>();
  readonly #links = new Map<LinkedQp, ShmLink>();
  #linksMade = 0;

  constructor(host: WireHost<LinkedQp>, dir: string) {
    super();
    this.#host = host;
    this.#dir = dir;
    this.#retries = new DialRetries(host);
    makeRunFolder(dir);
    sweepRuntimeDir(dir);
    this.gid = formatGid(Uint8Array.of(0xfd, 0x6d, 0x6c, 0x72, ...randomBytes(12)));
    this.#path = socketPath(dir, this.gid);
    const listener = Socket.messages();
    // It gets its name once it listens: before, the sweep of another process would remove it.
    listener.bind({ family: 'unix', path: `${this.#path}.new` });
    listener.listen(4096);
    renameSync(`${this.#path}.new`, this.#path);
    this.#listener = new WireListener(host, listener, (socket) => this.#accept(socket));
  }

  /**
   * Rings are polled without a system call; descriptors matter only while QPs are being connected.
   */
  get needsEvents(): boolean {
    return this.#dials.size > 0;
  }

  establish(qp: LinkedQp): void {
    if (isDialer(this, qp)) this.#dial(qp);
    else for (const pending of this.#pending) this.#match(pending);
  }

  wanted(qp: LinkedQp): void {
    this.#retries.wanted(qp);
  }

  abandon(qp: LinkedQp): void {
    this.#endDial(qp);
    this.#links.delete(qp);
    this.#retries.stop(qp);
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
    for (const pending of this.#pending) this.#drop(pending);
    for (const qp of this.#dials.keys()) this.#endDial(qp);
    this.#listener.close();
    rmSync(this.#path, { force: true });
  }

  #dial(qp: LinkedQp): void {
    const { peerAddress } = qp;
    if (peerAddress === undefined || qp.link !== undefined) return;
    using undo = new DisposableStack();
    try {
      const socket = undo.use(Socket.messages());
      socket.connect({ family: 'unix', path: socketPath(this.#dir, peerAddress.path.gid) });
      if (!isSameUser(socket)) throw new Error('the socket is of another user');
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
      const token = this.#host.watch(socket.fd, pollEvents.in | pollEvents.peerClosed, () => this.#onAnswer(qp));
      this.#dials.set(qp, { ...parts, token });
      undo.move();
    } catch {
      // The peer does not listen yet, or not any more: dial again until the QP's time is over.
      this.#retries.redial(qp, () => this.#dial(qp));
    }
  }

  #onAnswer(qp: LinkedQp): void {
    const dial = this.#dials.get(qp);
    if (dial === undefined) return;
    try {
      const offer = receiveOffer(dial.socket, 1);
      if (offer === undefined) return;
      using undo = new DisposableStack();
      const given = undo.use(offer.fds[0]);
      if (offer.hello.refusal !== 0 || offer.hello.toQp !== qp.number) throw new Error('refused');
      const peerEvent = undo.use(asEvent(given));
      this.#dials.delete(qp);
      this.#host.unwatch(dial.socket.fd, dial.token);
      for (const part of [dial.socket, dial.outgoing, dial.incoming, dial.event]) undo.use(part);
      this.#attach(qp, { ...dial, peerEvent }, offer.hello);
      undo.move();
    } catch {
      this.#endDial(qp);
      this.#retries.redial(qp, () => this.#dial(qp));
    }
  }

  #endDial(qp: LinkedQp): void {
    const dial = this.#dials.get(qp);
    if (dial === undefined) return;
    this.#dials.delete(qp);
    this.#host.unwatch(dial.socket.fd, dial.token);
    for (const part of [dial.socket, dial.outgoing, dial.incoming, dial.event]) part.close();
  }

  #accept(accepted: Socket): void {
    if (this.#pending.size >= MAX_PENDING || !isSameUser(accepted)) {
      accepted.close();
      return;
    }
    using undo = new DisposableStack();
    undo.use(accepted);
    const pending: Pending = { socket: accepted, token: 0, offer: undefined };
    pending.token = this.#host.watch(accepted.fd, pollEvents.in | pollEvents.peerClosed, () => {
      try {
        // The dialer sends one hello. A second one, or the end of the connection, drops it.
        const offer = receiveOffer(accepted, 3);
        if (offer === undefined) return;
        if (pending.offer !== undefined) throw new Error('a second hello');
        pending.offer = offer;
        this.#match(pending);
      } catch {
        this.#drop(pending);
      }
    });
    this.#pending.add(pending);
    this.#host.schedule(pending, MAX_PENDING_NS, () => this.#drop(pending));
    undo.move();
  }

  #match(pending: Pending): void {
    const { offer, socket } = pending;
    const qp = offer === undefined ? undefined : this.#host.qp(offer.hello.toQp);
    if (offer === undefined || qp === undefined || !isExpected(qp, offer.hello)) return;
    try {
      const [incoming, outgoing, peerEvent] = offer.fds;
      using undo = new DisposableStack();
      const parts = {
        socket,
        // The dialer's outgoing ring is the incoming one here.
        incoming: undo.use(SharedMemory.open(incoming)),
        outgoing: undo.use(SharedMemory.open(outgoing)),
        peerEvent: undo.use(asEvent(peerEvent)),
        event: undo.use(EventFd.create()),
      };
      socket.sendFds(encodeHello(helloFrom(this, qp, this.#host.faults)), [parts.event.fd]);
      this.#pending.delete(pending);
      this.#host.unschedule(pending);
      this.#host.unwatch(socket.fd, pending.token);
      this.#attach(qp, parts, offer.hello);
      undo.move();
    } catch {
      this.#drop(pending);
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
      // Asks for the next event at once: a program that polled just now may never do so again. The
      // pump then checks once more.
      stream.sleep();
      host.kick(qp);
    });
    const socketToken = host.watch(socket.fd, pollEvents.in | pollEvents.peerClosed, (events) => {
      const isGone = (events & (pollEvents.peerClosed | pollEvents.hangup | pollEvents.error)) !== 0;
      if (isGone || !this.#readMessages(stream, qp)) {
        stream.peerGone();
        sweepOne(socketPath(this.#dir, hello.fromGid));
      }
      host.kick(qp);
    });
    this.#retries.stop(qp);
    this.#links.set(qp, stream);
    // With faults, everything goes as frames, because the plan is about frames.
    const direct = faults === undefined && !lossy ? stream : undefined;
    qp.attach(new Link(stream, qp, { scratch, hasSums: lossy, faults: source }), lossy, direct);
    stream.sleep();
  }

  #readMessages(stream: ShmLink, qp: LinkedQp): boolean {
    try {
      return stream.readMessages(qp, this.#host.regions);
    } catch {
      return false;
    }
  }

  #drop(pending: Pending): void {
    this.#pending.delete(pending);
    this.#host.unschedule(pending);
    for (const fd of pending.offer?.fds ?? []) fd.close();
    if (pending.socket.isClosed) return;
    this.#host.unwatch(pending.socket.fd, pending.token);
    pending.socket.close();
  }
}

/**
 * Undefined when nothing has come; throws on a protocol error, or when the peer has closed the
 * connection.
 */
function receiveOffer(socket: Socket, fdCount: number): Offer | undefined {
  const bytes = new Uint8Array(HELLO_BYTES);
  const got = socket.receiveFds(bytes);
  if (got === undefined) return undefined;
  const hello = got.bytes === HELLO_BYTES ? decodeHello(bytes) : undefined;
  if (hello !== undefined && got.fds.length === fdCount) return { hello, fds: got.fds };
  for (const fd of got.fds) fd.close();
  throw new Error('no hello');
}

/** A peer can pass any descriptor, and writing to a full pipe would block this process. */
function asEvent(fd: Fd): EventFd {
  if (readlinkSync(`/proc/self/fd/${fd.fd}`) !== 'anon_inode:[eventfd]') throw new Error('no eventfd');
  return EventFd.adopt(fd.release());
}

/** Only processes of the same user share memory with each other. */
function isSameUser(socket: Socket): boolean {
  return socket.peerCredentials.uid === process.geteuid?.();
}

function socketPath(dir: string, gid: Gid): string {
  return join(dir, `${Buffer.from(gidBytes(gid)).toString('hex')}.sock`);
}

/** Removes sockets on which nobody listens: their processes ended without removing them. */
export function sweepRuntimeDir(dir: string): void {
  for (const name of readdirSync(dir)) if (name.endsWith('.sock')) sweepOne(join(dir, name));
}

/** Where there is no descriptor for it, the next sweep does it. */
function sweepOne(path: string): void {
  try {
    using socket = Socket.messages();
    socket.connect({ family: 'unix', path });
  } catch (error) {
    if (error instanceof SystemError && error.code === 'ECONNREFUSED') rmSync(path, { force: true });
  }
}
