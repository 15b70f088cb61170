// Where programs that have the library find the daemon: a unix socket that all users may connect
// to, followed on Node's event loop.

import { randomBytes } from 'node:crypto';
import { chmodSync, lstatSync, renameSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { Fd, FdWatch, Poller, pollEvents, Socket } from '../native/index.ts';
import type { DirectStatus } from '../status/index.ts';
import { makeRunFolder } from '../system/index.ts';
import { IdentityReader } from './identity.ts';
import { type LibraryNews, LibraryPrograms } from './library-programs.ts';
import type { Mesh, MeshNews } from './mesh.ts';
import type { OfferReport } from './offer-reports.ts';
import { Program } from './program.ts';
import { Promotions } from './promotions.ts';
import { readEnds } from './socket-ends.ts';

export interface DirectServerOptions {
  readonly socketPath: string;
  readonly ringBytes: number;
  readonly memoryBytes: number;
  /** Without it, only connections between programs of this host are promoted. */
  readonly mesh?: Mesh;
  readonly news?: LibraryNews;
  /** Whether there are descriptors for more programs and connections. Default: there are. */
  readonly hasRoom?: () => boolean;
  /** Rings that are idle for so long, or up to twice as long, give their pages back. */
  readonly trimMs?: number;
}

const nobody: LibraryNews = { onProcess: () => {}, onListeners: () => {} };
const MAX_PROGRAMS = 8192;
const MAX_PROGRAMS_OF_USER = 2048;
const LISTENER = 0;
/** Threads that wait for descriptors of programs to close. More than so many come of ill will. */
const MAX_CLOSING = 256;
/** How long nobody is heard while there are too many of those, or no descriptor is left. */
const PAUSE_MS = 100;
const TRIM_MS = 10_000;

export class DirectServer implements Disposable {
  readonly #listener: Socket;
  readonly #promotions: Promotions;
  readonly #poller: Poller;
  readonly #library: LibraryPrograms;
  readonly #programs = new Map<number, Program>();
  readonly #unsettled = new Set<Program>();
  readonly #undo: DisposableStack;
  #lastId = LISTENER;
  #watch: FdWatch | undefined;
  #pause: NodeJS.Timeout | undefined;

  /** Throws where this machine or this user cannot. */
  static start(options: DirectServerOptions): DirectServer {
    const { socketPath, ringBytes, memoryBytes, mesh, news = nobody, trimMs = TRIM_MS } = options;
    const { hasRoom = () => true } = options;
    using undo = new DisposableStack();
    const identities = undo.use(IdentityReader.create());
    const promotions = undo.use(
      new Promotions({
        ringBytes,
        memoryBytes,
        reader: {
          readIdentities: (sockets) => identities.read(sockets),
          readEnds,
        },
        mesh,
        hasRoom,
      }),
    );
    const listener = undo.use(Socket.messages());
    undo.defer(listenForAll(listener, socketPath));
    const poller = undo.use(Poller.create());
    poller.add(listener.fd, pollEvents.in, LISTENER);
    return new DirectServer(listener, promotions, poller, new LibraryPrograms(news), trimMs, undo.move());
  }

  private constructor(
    listener: Socket,
    promotions: Promotions,
    poller: Poller,
    library: LibraryPrograms,
    trimMs: number,
    undo: DisposableStack,
  ) {
    this.#listener = listener;
    this.#promotions = promotions;
    this.#poller = poller;
    this.#library = library;
    this.#undo = undo;
    undo.defer(() => {
      for (const program of this.#programs.values()) program.close();
      this.#programs.clear();
    });
    const trimming = setInterval(() => this.#trim(), trimMs);
    trimming.unref();
    undo.defer(() => clearInterval(trimming));
    undo.defer(() => {
      clearTimeout(this.#pause);
      this.#watch?.close();
    });
    this.#listen();
  }

  get status(): DirectStatus {
    return { programs: this.#programs.size, ...this.#promotions.counters };
  }

  /** What programs have offered: direct connections, those that wait, and the last declined. */
  get offers(): readonly OfferReport[] {
    return this.#promotions.reports(this.#programs.values());
  }

  /** Processes that have the library and have offered something. */
  hasProgram(pid: number): boolean {
    return this.#programs.values().some((program) => program.pid === pid);
  }

  /** Whether a program that has the library listens at this socket. */
  hasListener(inode: string): boolean {
    return this.#library.hasListener(inode);
  }

  /** What happens to peers and lanes. Nobody hears it without a mesh. */
  hear(news: MeshNews): void {
    if (this.#undo.disposed) return;
    this.#promotions.hear(news);
    this.#settle();
  }

  /**
   * Connections between hosts go back to TCP at once, and no others are promoted. Those within the
   * host go on through their rings.
   */
  drain(): void {
    if (this.#undo.disposed) return;
    // Programs that have just closed a connection, or ended, may have left the rest of their rings
    // to the lanes.
    this.#attend();
    this.#promotions.leavePeers();
    this.close();
  }

  /** Programs hear that the daemon has ended, and find the next one by themselves. */
  close(): void {
    this.#undo.dispose();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #listen(): void {
    this.#watch = FdWatch.start(this.#poller.fd, () => this.#attend());
  }

  /** Nobody is heard for a while. Programs go on without the daemon meanwhile. */
  #rest(): void {
    this.#watch?.close();
    clearTimeout(this.#pause);
    this.#pause = setTimeout(() => this.#listen(), PAUSE_MS);
    this.#pause.unref();
  }

  #attend(): void {
    if (Fd.closingAside > MAX_CLOSING) {
      this.#rest();
      return;
    }
    const count = this.#poller.wait(0);
    for (let index = 0; index < count; index++) {
      const token = this.#poller.token(index);
      const program = this.#programs.get(token);
      if (token === LISTENER) this.#accept();
      else if (program !== undefined) this.#serve(program, this.#poller.events(index));
    }
    this.#promotions.decide();
    this.#settle();
  }

  #trim(): void {
    this.#promotions.trim(this.#programs);
    this.#settle();
  }

  #accept(): void {
    try {
      for (let socket = this.#listener.accept(); socket !== undefined; socket = this.#listener.accept()) {
        this.#welcome(socket);
      }
    } catch {
      // Out of descriptors or memory: it would be tried again at once and for ever.
      this.#rest();
    }
  }

  #welcome(socket: Socket): void {
    using undo = new DisposableStack();
    if (!this.#promotions.hasDescriptors) {
      // The program goes on without the daemon, and tries again.
      socket.close();
      return;
    }
    const id = ++this.#lastId;
    const program = undo.use(
      new Program(id, socket, {
        onOffer: (from, connection, fds) => this.#promotions.offer(from, connection, fds),
        onWithdraw: (from, connection, how) => this.#promotions.withdraw(from, connection, how),
        onWelcome: (from) => this.#library.add(from),
        onListens: (from, inode) => this.#library.listens(from, inode),
        onUnsettled: (which) => this.#unsettled.add(which),
      }),
    );
    const ofUser = this.#programs.values().reduce((count, { uid }) => count + Number(uid === program.uid), 0);
    if (this.#programs.size >= MAX_PROGRAMS || ofUser >= MAX_PROGRAMS_OF_USER) return;
    this.#poller.add(program.fd, program.events, id);
    this.#programs.set(id, program);
    undo.move();
  }

  #serve(program: Program, events: number): void {
    try {
      if ((events & pollEvents.out) !== 0) program.flush();
      const isGone = (events & (pollEvents.hangup | pollEvents.error)) !== 0;
      if (isGone || ((events & pollEvents.in) !== 0 && !program.receive())) this.#end(program);
    } catch {
      // It broke the protocol, or its socket failed. Nothing that it sends may hurt others.
      this.#end(program);
    }
  }

  /** Follows what each program waits for now, and ends those that could not be sent to. */
  #settle(): void {
    // To end one program may unsettle others, which are then visited as well.
    for (const program of this.#unsettled) {
      this.#unsettled.delete(program);
      if (!this.#programs.has(program.id)) continue;
      if (program.isBroken) this.#end(program);
      else this.#poller.change(program.fd, program.events, program.id);
    }
  }

  #end(program: Program): void {
    if (!this.#programs.delete(program.id)) return;
    this.#library.remove(program);
    for (const { id, programs } of this.#promotions.end(program)) {
      for (const party of programs) this.#programs.get(party)?.forgetArena(id);
    }
    this.#poller.remove(program.fd);
    program.close();
  }
}

/** The socket has its mode and listens when it gets its name. The answer removes the name again. */
function listenForAll(listener: Socket, path: string): () => void {
  makeRunFolder(dirname(path));
  const made = join(dirname(path), `.${randomBytes(4).toString('hex')}`);
  listener.bind({ family: 'unix', path: made });
  try {
    chmodSync(made, 0o666);
    listener.listen();
    const { ino } = lstatSync(made);
    // What a dead daemon left is replaced. A living one of this instance would have the control
    // socket, which was opened before.
    renameSync(made, path);
    return () => {
      if (lstatSync(path, { throwIfNoEntry: false })?.ino === ino) rmSync(path, { force: true });
    };
  } catch (error) {
    rmSync(made, { force: true });
    throw error;
  }
}
