// The network namespaces of programs that are steered, besides the daemon's own: found by their
// first connect, which is plain TCP, and served for as long as a process is in them.
//
// Only namespaces that were made with the rights of the daemon's own user namespace are served, as
// those of containers are: in one that any user can make, the user may take anybody's address.

import { constants, fstatSync, readdirSync, readlinkSync } from 'node:fs';
import { SystemError } from '../errors.ts';
import type { ToLane } from '../lane/index.ts';
import { Fd, FdWatch, inNetns, isOwnedHere, PidFd, Socket } from '../native/index.ts';
import { type Connection, ownAddresses, verdictName } from '../steering/index.ts';

/** Each costs every lane a listener for each address family. */
const MAX_NAMESPACES = 1024;
/** Addresses that come and go in a namespace raise no event. */
const SCAN_MS = 1000;

interface NamespaceLanes {
  tellAll(message: ToLane): void;
  /** Resolves when all lanes have heard what they were told before. */
  settled(): Promise<void>;
}

interface Namespace {
  readonly netns: number;
  readonly fd: Fd;
  addresses: readonly string[];
  /** A process in it. */
  pid: number;
  watch: Disposable;
}

export class Namespaces implements Disposable {
  readonly #lanes: NamespaceLanes;
  readonly #onAddresses: () => Promise<void>;
  readonly #own = ownCookie();
  readonly #served = new Map<number, Namespace>();
  readonly #timer: NodeJS.Timeout;
  /** Of namespaces that could not be served: another connect from there asks again after a scan. */
  readonly #refused = new Set<number>();

  /** `onAddresses`: they have changed; resolves when peers know them. */
  constructor(lanes: NamespaceLanes, onAddresses: () => Promise<void>) {
    this.#lanes = lanes;
    this.#onAddresses = onAddresses;
    this.#refused.add(this.#own);
    this.#timer = setInterval(() => this.#scan(), SCAN_MS);
  }

  /** Those of all namespaces that are served. */
  get addresses(): readonly string[] {
    return Array.from(this.#served.values()).flatMap(({ addresses }) => addresses);
  }

  /** Pass it every connect that was not carried. */
  onConnect({ verdict, netns, pid }: Connection): void {
    if (verdictName(verdict) !== 'notServed' || this.#served.has(netns) || this.#refused.has(netns)) return;
    if (!this.#add(netns, pid)) this.#refused.add(netns);
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
    for (const namespace of this.#served.values()) this.#close(namespace);
    this.#served.clear();
  }

  #add(netns: number, pid: number): boolean {
    if (this.#served.size >= MAX_NAMESPACES) return false;
    using undo = new DisposableStack();
    try {
      const fd = undo.use(Fd.open(`/proc/${pid}/ns/net`, constants.O_RDONLY));
      if (!isOwnedHere(fd)) return false;
      const { cookie, addresses } = inNetns(fd, () => ({ cookie: ownCookie(), addresses: ownAddresses() }));
      // The process may be another one by now, or have moved.
      if (cookie !== netns || addresses.length === 0 || this.#isTaken(addresses)) return false;
      const namespace: Namespace = { netns, fd, addresses, pid, watch: undo.use(this.#watch(netns, pid)) };
      this.#served.set(netns, namespace);
      undo.move();
      void this.#serve(namespace);
      return true;
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      // The process has ended, or is not ours to look at.
      return false;
    }
  }

  /** Two that share an address cannot both be told from each other by their peers. */
  #isTaken(addresses: readonly string[]): boolean {
    const taken = new Set([...ownAddresses(), ...this.addresses]);
    return addresses.some((address) => taken.has(address));
  }

  /** Lanes listen at the first address of each family, once peers know whose it is. */
  async #serve(namespace: Namespace): Promise<void> {
    await this.#onAddresses();
    const { netns, fd, addresses } = namespace;
    if (this.#served.get(netns) !== namespace) return;
    const first = [addresses.find((host) => !host.includes(':')), addresses.find((host) => host.includes(':'))];
    const hosts = first.filter((host) => host !== undefined);
    this.#lanes.tellAll({ kind: 'serveNetns', netns, fd: fd.fd, hosts });
  }

  #watch(netns: number, pid: number): Disposable {
    using undo = new DisposableStack();
    const process = undo.use(PidFd.of(pid));
    undo.use(FdWatch.start(process.fd, () => this.#ended(netns)));
    return undo.move();
  }

  /** The process by which the namespace is known has ended. */
  #ended(netns: number): void {
    const namespace = this.#served.get(netns);
    if (namespace === undefined) return;
    namespace.watch[Symbol.dispose]();
    for (const pid of processesIn(namespace.fd)) {
      try {
        namespace.watch = this.#watch(netns, pid);
        namespace.pid = pid;
        return;
      } catch (error) {
        if (!(error instanceof SystemError)) throw error;
      }
    }
    this.#served.delete(netns);
    this.#close(namespace);
  }

  /** Lanes have a descriptor of their own of it while they hear the message. */
  #close(namespace: Namespace): void {
    namespace.watch[Symbol.dispose]();
    this.#lanes.tellAll({ kind: 'leaveNetns', netns: namespace.netns });
    void this.#lanes.settled().then(() => namespace.fd.close());
    void this.#onAddresses();
  }

  #scan(): void {
    this.#refused.clear();
    this.#refused.add(this.#own);
    for (const namespace of this.#served.values()) {
      const addresses = inNetns(namespace.fd, ownAddresses);
      if (String(addresses) === String(namespace.addresses)) continue;
      namespace.addresses = addresses;
      this.#lanes.tellAll({ kind: 'leaveNetns', netns: namespace.netns });
      void this.#serve(namespace);
    }
  }
}

/** Of the network namespace that the calling thread is in. */
function ownCookie(): number {
  using socket = Socket.stream('ipv4');
  return socket.netnsCookie;
}

/** Processes in the network namespace that the descriptor stands for. */
function processesIn(namespace: Fd): readonly number[] {
  const name = `net:[${fstatSync(namespace.fd).ino}]`;
  return readdirSync('/proc').flatMap((entry) => {
    if (!/^\d+$/.test(entry)) return [];
    try {
      return readlinkSync(`/proc/${entry}/ns/net`) === name ? [Number(entry)] : [];
    } catch {
      // It has ended meanwhile.
      return [];
    }
  });
}
