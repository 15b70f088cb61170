// The network namespaces of programs that are steered, besides the daemon's own: found by a first
// connect, which is plain TCP, by a program that listens, or by a SYN that a listener got; and
// served for as long as a process is in them.
//
// Only namespaces that were made with the rights of the daemon's own user namespace are served, as
// those of containers are: in one that any user can make, the user may take anybody's address.

import { constants, fstatSync, globSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { SystemError, unlessShort } from '../errors.ts';
import type { ToLane } from '../lane/index.ts';
import { Fd, FdWatch, inNetns, isOwnedHere, netnsCookie, PidFd } from '../native/index.ts';
import { ownAddresses } from '../steering/index.ts';

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
  readonly container: string;
  addresses: readonly string[];
  /** A process in it. */
  pid: number;
  watch: Disposable;
}

export class Namespaces implements Disposable {
  readonly #cgroup: string;
  readonly #lanes: NamespaceLanes;
  readonly #onAddresses: (hosts: readonly string[]) => Promise<void>;
  readonly #own = netnsCookie();
  readonly #served = new Map<number, Namespace>();
  readonly #timer: NodeJS.Timeout;
  #onChange: () => void = () => {};
  /** Of namespaces that could not be served: another connect from there asks again after a scan. */
  readonly #refused = new Set<number>();

  /**
   * `cgroup`: whose processes are steered, as a whole path. `onAddresses`: they have changed;
   * resolves when peers know them.
   */
  constructor(cgroup: string, lanes: NamespaceLanes, onAddresses: (hosts: readonly string[]) => Promise<void>) {
    this.#cgroup = cgroup;
    this.#lanes = lanes;
    this.#onAddresses = onAddresses;
    this.#refused.add(this.#own);
    this.#timer = setInterval(() => unlessShort(() => this.#scan()), SCAN_MS);
  }

  /** Those of all namespaces that are served. */
  get addresses(): readonly string[] {
    return Array.from(this.#served.values()).flatMap(({ addresses }) => addresses);
  }

  /** Called when one comes, goes or has other addresses. */
  onChange(listener: () => void): void {
    this.#onChange = listener;
  }

  /** A program in it, of that process, connects or listens. */
  found(netns: number, pid: number): void {
    if (this.#served.has(netns) || this.#refused.has(netns)) return;
    if (!this.#add(netns, pid)) this.#refused.add(netns);
  }

  /** Looks for a process in it, once in a while. */
  isServed(netns: number): boolean {
    if (netns === this.#own || this.#served.has(netns)) return true;
    if (this.#refused.has(netns)) return false;
    this.discover();
    if (!this.#served.has(netns)) this.#refused.add(netns);
    return this.#served.has(netns);
  }

  /** What stands for it; undefined when it is not served. */
  fdOf(netns: number): Fd | undefined {
    return this.#served.get(netns)?.fd;
  }

  /** The name of the container that it is; empty for this host's own. */
  containerOf(netns: number): string {
    return this.#served.get(netns)?.container ?? '';
  }

  get served(): Iterable<Pick<Namespace, 'netns' | 'fd' | 'addresses'>> {
    return this.#served.values();
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
    for (const namespace of this.#served.values()) this.#close(namespace);
    this.#served.clear();
  }

  /** Those of all processes below the cgroup. */
  discover(): void {
    unlessShort(() => this.#discover());
  }

  #discover(): void {
    const seen = new Set<string>();
    for (const pid of processesBelow(this.#cgroup)) {
      const name = netnsOf(pid);
      if (name === undefined || seen.has(name)) continue;
      seen.add(name);
      const netns = cookieOf(pid);
      if (netns !== undefined) this.found(netns, pid);
    }
  }

  #add(netns: number, pid: number): boolean {
    if (this.#served.size >= MAX_NAMESPACES) return false;
    using undo = new DisposableStack();
    try {
      const fd = undo.use(Fd.open(`/proc/${pid}/ns/net`, constants.O_RDONLY));
      if (!isOwnedHere(fd)) return false;
      const { cookie, addresses } = inNetns(fd, () => ({ cookie: netnsCookie(), addresses: ownAddresses() }));
      // The process may be another one by now, or have moved.
      if (cookie !== netns || addresses.length === 0 || this.#isTaken(addresses)) return false;
      const watch = undo.use(this.#watch(netns, pid));
      const namespace: Namespace = { netns, fd, addresses, container: containerName(pid), pid, watch };
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
    this.#onChange();
    await this.#onAddresses(this.addresses);
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
    for (const pid of unlessShort(() => processesIn(namespace.fd)) ?? []) {
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
    this.#onChange();
    void this.#onAddresses(this.addresses);
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

/** Processes in the network namespace that the descriptor stands for. */
function processesIn(namespace: Fd): readonly number[] {
  const name = `net:[${fstatSync(namespace.fd).ino}]`;
  return readdirSync('/proc').flatMap((entry) =>
    /^\d+$/.test(entry) && netnsOf(Number(entry)) === name ? [Number(entry)] : [],
  );
}

/** Processes in a cgroup and below it. */
function* processesBelow(cgroup: string): Generator<number> {
  for (const file of globSync('**/cgroup.procs', { cwd: cgroup })) {
    try {
      for (const pid of readFileSync(join(cgroup, file), 'utf8').split('\n')) if (Number(pid) > 0) yield Number(pid);
    } catch {
      // The cgroup is gone, or has threads only.
    }
  }
}

/** The name of a process's network namespace; undefined when the process has ended. */
function netnsOf(pid: number): string | undefined {
  try {
    return readlinkSync(`/proc/${pid}/ns/net`);
  } catch {
    return undefined;
  }
}

function cookieOf(pid: number): number | undefined {
  try {
    using namespace = Fd.open(`/proc/${pid}/ns/net`, constants.O_RDONLY);
    return inNetns(namespace, netnsCookie);
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    return undefined;
  }
}

/**
 * The name of a process's cgroup, as people know the container: of `libpod-ID.scope` or
 * `docker-ID.scope` the first twelve digits of the ID.
 */
function containerName(pid: number): string {
  try {
    const path = /^0::(.*)$/m.exec(readFileSync(`/proc/${pid}/cgroup`, 'utf8'))?.[1] ?? '';
    const names = path.split('/').filter((name) => name !== '' && name !== 'container');
    const name = names.at(-1) ?? '';
    return /([0-9a-f]{64})(?:\.scope)?$/.exec(name)?.[1]?.slice(0, 12) ?? name;
  } catch {
    return '';
  }
}
