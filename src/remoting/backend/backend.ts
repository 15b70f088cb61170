// The backend of remoting: admits guests by a unix socket, and gives each a thread of its own that
// drives the devices.

import { chmodSync, renameSync, rmSync } from 'node:fs';
import { isShortage, MillraceError, SystemError, UsageError } from '../../errors.ts';
import { FdWatch, Socket } from '../../native/index.ts';
import { listDevices } from '../../providers/index.ts';
import type { WaitMode } from '../../spin/index.ts';
import type { BackendStatus, GuestLimits } from '../../status/index.ts';
import {
  closeHostTransport,
  type HostTransportSpec,
  messageKinds,
  type QemuHostSpec,
  QemuMachine,
  receivedMachine,
  sendMessage,
  type UnixMessage,
} from '../transports/index.ts';
import { PendingConnections } from './admission/pending-connections.ts';
import { DEFAULT_REGISTRATIONS_PER_SECOND, RegistrationRate } from './admission/registration-rate.ts';
import { type HostAmounts, HostShare, hostLimits } from './guest/host-share.ts';
import { publishGuest } from './guest-events.ts';
import { type BackendPolicy, DEFAULT_MAX_GUESTS, type DeviceGrant, defaultLimits } from './policy.ts';
import { GuestThread } from './threads/guest-thread.ts';

export interface BackendOptions extends BackendPolicy {
  /** Where guests of this host connect. */
  readonly socketPath: string;
  /** How the threads wait for their guests. Default: `mixed`. */
  readonly wait?: WaitMode;
  /**
   * A file that records the calls of the first guest; those of guest n go to the same name with
   * `.n` behind it.
   */
  readonly record?: string;
}

/** Connections that are not admitted yet. */
const MAX_PENDING = 128;
/** Idle threads that are kept for the next guests. */
const MAX_IDLE = 4;
/** What a guest takes of the process before it has anything: its thread and its connection. */
const GUEST_COST: HostAmounts = { descriptors: 15, mappings: 140 };
/** One guest may have at most this part of what there is for all. */
const GUEST_SHARE = 1 / 2;
/** How long nobody is accepted after descriptors or memory ran out. */
const PAUSE_MS = 100;

export class Backend implements AsyncDisposable {
  readonly socketPath: string;
  readonly #options: BackendOptions;
  readonly #limits: GuestLimits;
  readonly #grants: readonly DeviceGrant[];
  readonly #listener: Socket;
  #watch: FdWatch;
  #pause: NodeJS.Timeout | undefined;
  readonly #guests = new Set<GuestThread>();
  /**
   * Threads whose guests have ended. They are kept because starting one takes longer than a small
   * guest runs.
   */
  readonly #idle: GuestThread[] = [];
  readonly #machines = new Set<QemuMachine>();
  readonly #pending = new PendingConnections(MAX_PENDING, (socket, message) => this.#register(socket, message));
  readonly #rate: RegistrationRate;
  readonly #host: HostShare;
  /** Programs of virtual machines that wait for their turn. */
  readonly #waiting = new Map<NodeJS.Timeout, QemuHostSpec>();
  #lastMachine = 0;
  #lastId = 0;
  #accepted = 0;
  #refused = 0;
  #dropped = 0;
  #isClosed = false;

  /** Listens when it returns. Keeps the process alive until it is closed. */
  static start(options: BackendOptions): Backend {
    return new Backend(options);
  }

  private constructor(options: BackendOptions) {
    this.#options = options;
    this.socketPath = options.socketPath;
    const host = { ...hostLimits(), ...options.host };
    this.#host = HostShare.create(host);
    const shareOf = (resource: keyof HostAmounts): number =>
      Math.min(defaultLimits[resource], Math.floor(host[resource] * GUEST_SHARE));
    const shares = { descriptors: shareOf('descriptors'), mappings: shareOf('mappings') };
    this.#limits = { ...defaultLimits, ...shares, ...options.limits };
    for (const [name, value] of Object.entries({ ...this.#limits, ...options.host })) {
      if (!Number.isSafeInteger(value) || value < 0) throw new UsageError(`a limit of ${value} ${name} for guests`);
    }
    const { registrationsPerSecond = DEFAULT_REGISTRATIONS_PER_SECOND } = options;
    if (!(registrationsPerSecond > 0)) throw new UsageError(`${registrationsPerSecond} registrations a second`);
    this.#rate = new RegistrationRate(registrationsPerSecond);
    // A backend in a guest may serve guests of its own, but does not hand on remote devices.
    const own = (): DeviceGrant[] =>
      listDevices()
        .filter(({ provider }) => provider !== 'remote')
        .map(({ name }) => ({ name }));
    this.#grants = options.devices ?? own();
    using undo = new DisposableStack();
    this.#listener = undo.adopt(listen(options), (listener) => listener.close());
    this.#watch = undo.use(this.#listen());
    undo.move();
  }

  /**
   * Serves a guest over any transport. Takes over the descriptors of the spec, also when it throws.
   * Returns the guest's number. `payer`: the process or machine whose registrations are counted.
   */
  serve(transport: HostTransportSpec, payer = payerOf(transport)): number {
    using undo = new DisposableStack();
    undo.defer(() => closeHostTransport(transport));
    if (this.#isClosed) throw new MillraceError('MILLRACE_ERR_CLOSED', 'this Backend is closed');
    const id = ++this.#lastId;
    const { wait = 'mixed', hugePages = false, record } = this.#options;
    const thread = this.#freeThread();
    const { peer } = transport;
    const ended = thread.serve({
      id,
      transport,
      grants: this.#grants,
      limits: this.#limits,
      hugePages,
      wait,
      ...(record !== undefined && { record: id === 1 ? record : `${record}.${id}` }),
    });
    undo.move();
    this.#guests.add(thread);
    this.#accepted++;
    publishGuest({ what: 'connected', guest: id, peer, reason: '' });
    void ended.then(({ reason, isProtocolError }) => {
      this.#guests.delete(thread);
      this.#keep(thread);
      if (isProtocolError) {
        this.#dropped++;
        this.#rate.chargeProtocolError(payer);
      }
      publishGuest({ what: isProtocolError ? 'dropped' : 'ended', guest: id, peer, reason });
    });
    return id;
  }

  async status(): Promise<BackendStatus> {
    const guests = await Promise.all([...this.#guests].map((guest) => guest.status()));
    return {
      socketPath: this.socketPath,
      devices: this.#grants.map(({ name }) => name),
      limits: this.#limits,
      maxGuests: this.#maxGuests,
      host: {
        descriptors: { used: this.#host.used.descriptors, limit: this.#host.limits.descriptors },
        mappings: { used: this.#host.used.mappings, limit: this.#host.limits.mappings },
      },
      guests: guests.filter((guest) => guest !== undefined),
      accepted: this.#accepted,
      refused: this.#refused,
      dropped: this.#dropped,
    };
  }

  /** Ends one guest. Harmless when it has ended already. */
  async drop(id: number): Promise<void> {
    for (const thread of this.#guests) if (thread.guest?.id === id) await thread.drop();
  }

  /** Ends all guests. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    clearTimeout(this.#pause);
    for (const [timer, spec] of this.#waiting) {
      clearTimeout(timer);
      closeHostTransport(spec);
    }
    this.#waiting.clear();
    this.#watch.close();
    this.#pending.close();
    this.#listener.close();
    rmSync(this.socketPath, { force: true });
    await Promise.all([...this.#guests, ...this.#idle].map((thread) => thread.close()));
    await Promise.all([...this.#machines].map((machine) => machine.close()));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #freeThread(): GuestThread {
    for (let thread = this.#idle.pop(); thread !== undefined; thread = this.#idle.pop()) {
      // Its thread may have ended since.
      if (thread.isFree) return thread;
    }
    const problem = this.#host.take(GUEST_COST);
    if (problem !== undefined) throw new MillraceError('MILLRACE_ERR_QUOTA', `serve one more guest: ${problem}`);
    const onExit = (): void => this.#host.give(GUEST_COST);
    try {
      return new GuestThread({ host: this.#host.memory, onExit });
    } catch (error) {
      onExit();
      throw error;
    }
  }

  #keep(thread: GuestThread): void {
    if (!thread.isFree) return;
    const { used, limits } = this.#host;
    // Guests that are there need it more.
    const isTight = used.descriptors > limits.descriptors / 2 || used.mappings > limits.mappings / 2;
    if (this.#isClosed || isTight || this.#idle.length >= MAX_IDLE) void thread.close();
    else this.#idle.push(thread);
  }

  get #maxGuests(): number {
    return this.#options.maxGuests ?? DEFAULT_MAX_GUESTS;
  }

  #accept(): void {
    try {
      for (let socket = this.#listener.accept(); socket !== undefined; socket = this.#listener.accept()) {
        this.#pending.add(socket);
      }
    } catch (error) {
      if (!isShortage(error)) throw error;
      // Who waits would be told of again at once, and for ever.
      this.#watch.close();
      this.#pause = setTimeout(() => {
        this.#watch = this.#listen();
      }, PAUSE_MS);
    }
  }

  #listen(): FdWatch {
    const watch = FdWatch.start(this.#listener.fd, () => this.#accept());
    watch.hold(true);
    return watch;
  }

  /** Takes over the socket and the descriptors of the message. */
  #register(socket: Socket, message: UnixMessage): void {
    const { pid, uid, gid } = socket.peerCredentials;
    const delayMs = this.#rate.charge(pid);
    let problem = this.#problemWith(uid, gid) ?? this.#problemWithRate(delayMs, message);
    if (problem === undefined && message.kind === messageKinds.machine) {
      problem = this.#admitMachine(socket, message);
      if (problem === undefined) return;
    }
    for (const fd of message.fds) fd.close();
    if (problem !== undefined) this.#refuse(socket, problem);
    else if (delayMs === 0) this.#admit(socket);
    else this.#pending.hold(socket, delayMs ?? 0, () => this.#admit(socket));
  }

  #admit(socket: Socket): void {
    const { pid, uid, gid } = socket.peerCredentials;
    // Others may have been admitted while it waited.
    const problem = this.#problemWith(uid, gid);
    if (problem !== undefined) this.#refuse(socket, problem);
    else this.#serveOrRefuse({ kind: 'unix', socketFd: socket.release(), peer: peerName(pid, uid), pid });
  }

  #refuse(socket: Socket, problem: string): void {
    const { pid, uid } = socket.peerCredentials;
    this.#refused++;
    try {
      sendMessage(socket, messageKinds.refusal, 0, [], problem);
    } catch {
      // It has closed the connection already.
    }
    socket.close();
    publishGuest({ what: 'refused', guest: 0, peer: peerName(pid, uid), reason: problem });
  }

  /** Serves the programs of a machine until QEMU ends. Returns why not, or undefined. */
  #admitMachine(socket: Socket, message: UnixMessage): string | undefined {
    try {
      const { name, ends } = receivedMachine(message);
      const payer = -++this.#lastMachine;
      const machine = new QemuMachine({ name, ends, serve: (spec) => this.#paceProgram(spec, payer) });
      this.#machines.add(machine);
      void machine.closed.then(() => this.#machines.delete(machine));
      sendMessage(socket, messageKinds.registered, 0, []);
      socket.close();
      return undefined;
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    }
  }

  /** Where there is no room, the program learns that from its descriptors, which are closed. */
  #serveProgram(spec: QemuHostSpec, payer: number): void {
    if (this.#isClosed || this.#guests.size >= this.#maxGuests) this.#refuseProgram(spec, 'it has guests enough');
    else this.#serveOrRefuse(spec, payer);
  }

  /** A machine pays for its programs as a process does for its guests. */
  #paceProgram(spec: QemuHostSpec, payer: number): void {
    const delayMs = this.#rate.charge(payer);
    if (delayMs === 0) {
      this.#serveProgram(spec, payer);
    } else if (delayMs === undefined) {
      this.#refuseProgram(spec, 'programs of this machine have registered too often');
    } else {
      const timer = setTimeout(() => {
        this.#waiting.delete(timer);
        this.#serveProgram(spec, payer);
      }, delayMs);
      this.#waiting.set(timer, spec);
    }
  }

  #refuseProgram(spec: QemuHostSpec, reason: string): void {
    this.#refused++;
    closeHostTransport(spec);
    publishGuest({ what: 'refused', guest: 0, peer: spec.peer, reason });
  }

  /** A guest for which there are no descriptors or no memory is refused; the others go on. */
  #serveOrRefuse(spec: HostTransportSpec, payer = payerOf(spec)): void {
    try {
      this.serve(spec, payer);
    } catch (error) {
      this.#refused++;
      const reason = error instanceof Error ? error.message : String(error);
      publishGuest({ what: 'refused', guest: 0, peer: spec.peer, reason });
    }
  }

  /**
   * A machine does not wait for its turn, because its descriptors would be held meanwhile: it is
   * refused and may register again.
   */
  #problemWithRate(delayMs: number | undefined, { kind }: UnixMessage): string | undefined {
    if (delayMs === 0 || (delayMs !== undefined && kind !== messageKinds.machine)) return undefined;
    return 'this process has registered too often, or a guest of it was dropped; try again in a few seconds';
  }

  #problemWith(uid: number, gid: number): string | undefined {
    const { uids = [process.getuid?.() ?? 0], gids = [] } = this.#options;
    if (!uids.includes(uid) && !gids.includes(gid)) return `uid ${uid}, gid ${gid} are not allowed to use this backend`;
    if (this.#machines.size >= this.#maxGuests) return `it has ${this.#machines.size} machines, which is its limit`;
    if (this.#guests.size >= this.#maxGuests) return `it has ${this.#guests.size} guests already, which is its limit`;
    // A thread that is idle has all that a guest needs at first.
    if (this.#idle.length > 0) return undefined;
    const problem = this.#host.take(GUEST_COST);
    if (problem === undefined) this.#host.give(GUEST_COST);
    return problem;
  }
}

/** 0 pays for nobody in particular. */
function payerOf(spec: HostTransportSpec): number {
  return spec.kind === 'unix' ? spec.pid : 0;
}

function peerName(pid: number, uid: number): string {
  return `pid ${pid} of uid ${uid}`;
}

/**
 * Gives the socket its name once it listens. The kernel tells who connects, so the file may be open
 * to all whom the policy names.
 */
function listen({ socketPath, uids, gids }: BackendOptions): Socket {
  using undo = new DisposableStack();
  removeStale(socketPath);
  const fresh = `${socketPath}.${process.pid}.new`;
  const listener = undo.use(Socket.messages());
  rmSync(fresh, { force: true });
  listener.bind({ family: 'unix', path: fresh });
  chmodSync(fresh, uids === undefined && gids === undefined ? 0o600 : 0o666);
  listener.listen();
  renameSync(fresh, socketPath);
  undo.move();
  return listener;
}

/** Removes a socket on which nobody listens: its backend ended without removing it. */
function removeStale(socketPath: string): void {
  using probe = Socket.messages();
  try {
    probe.connect({ family: 'unix', path: socketPath });
  } catch (error) {
    if (error instanceof SystemError && error.code === 'ENOENT') return;
    if (!(error instanceof SystemError && error.code === 'ECONNREFUSED')) throw error;
    rmSync(socketPath, { force: true });
    return;
  }
  throw new MillraceError(
    'MILLRACE_ERR_USAGE',
    `start a backend at ${socketPath}: one is running there already; choose another socket`,
  );
}
