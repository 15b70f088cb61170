// Who listens on this host, as the kernel has it: a table at the start, and again whenever something has changed.

import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import { addressWords, formatIpEndpoint, hostOf } from './endpoint.ts';
import type { IpEndpoint } from './layouts.ts';

const LISTEN = '0A';
const MAX_KNOWN = 4096;
const anyAddress = new Set(['0.0.0.0', '::']);

/** Lines of /proc/net/tcp or tcp6, in the state of a listener, but for sockets whose inodes are left out. */
export function parseListeners(text: string, isLeftOut?: (inode: string) => boolean): readonly IpEndpoint[] {
  const listeners: IpEndpoint[] = [];
  for (const line of text.split('\n').slice(1)) {
    const [, local = '', , state, , , , , , inode = ''] = line.trim().split(/\s+/);
    const [words = '', port = ''] = local.split(':');
    if (state !== LISTEN || isLeftOut?.(inode) === true) continue;
    // The kernel prints the words of the address as it has them in memory.
    const address = (words.match(/.{8}/g) ?? []).map((word) => Number.parseInt(word, 16));
    const whole = address.length === 1 ? [0, 0, 0xffff_0000, address[0] ?? 0] : address;
    listeners.push({ address: whole, port: Number.parseInt(port, 16) });
  }
  return listeners;
}

/** All listeners of this network namespace. */
export function scanListeners(isLeftOut?: (inode: string) => boolean): readonly IpEndpoint[] {
  return ['/proc/thread-self/net/tcp', '/proc/thread-self/net/tcp6'].flatMap((file) => {
    try {
      return parseListeners(readFileSync(file, 'utf8'), isLeftOut);
    } catch {
      // A kernel without IPv6.
      return [];
    }
  });
}

/** This process's own listeners: a daemon's control connection and its devices listen, too. */
export class OwnListeners {
  /** By inode: a process has thousands of sockets, so each listener is looked for only once. */
  readonly #known = new Map<string, boolean>();

  has(inode: string): boolean {
    let isOwn = this.#known.get(inode);
    if (isOwn === undefined) {
      isOwn = ownSockets().has(inode);
      this.#known.set(inode, isOwn);
      if (this.#known.size > MAX_KNOWN) this.#known.clear();
    }
    return isOwn;
  }
}

function ownSockets(): ReadonlySet<string> {
  const inodes = new Set<string>();
  for (const fd of readdirSync('/proc/self/fd')) {
    try {
      const inode = /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/self/fd/${fd}`))?.[1];
      if (inode !== undefined) inodes.add(inode);
    } catch {
      // Closed meanwhile.
    }
  }
  return inodes;
}

/** Where others reach a listener: one that listens everywhere, at each of this host's addresses. */
export function reachableAt(
  listener: IpEndpoint,
  addresses: readonly string[] = ownAddresses(),
): readonly IpEndpoint[] {
  const host = hostOf(listener.address);
  if (!anyAddress.has(host)) return [listener];
  // A socket on :: takes IPv4 as well, unless told otherwise; who asks in vain is refused as by plain TCP.
  return addresses
    .filter((address) => host === '::' || !address.includes(':'))
    .map((address) => ({ address: addressWords(address), port: listener.port }));
}

/** Of all interfaces but the loopback, without those that only one link knows. */
export function ownAddresses(): readonly string[] {
  return Object.values(networkInterfaces())
    .flatMap((list) => list ?? [])
    .filter(({ internal, address }) => !internal && !address.startsWith('fe80'))
    .map(({ address }) => address);
}

/** The set of listeners, kept up to date by whoever hears of changes. */
export class ListenerTable {
  readonly #scan: () => readonly IpEndpoint[];
  #known = new Map<string, IpEndpoint>();

  constructor(scan: () => readonly IpEndpoint[] = scanListeners) {
    this.#scan = scan;
  }

  get all(): readonly IpEndpoint[] {
    return [...this.#known.values()];
  }

  /** Looks again. What has come and what has gone. */
  refresh(): { readonly added: readonly IpEndpoint[]; readonly removed: readonly IpEndpoint[] } {
    const now = new Map(this.#scan().map((endpoint) => [formatIpEndpoint(endpoint), endpoint]));
    const added = [...now].filter(([key]) => !this.#known.has(key)).map(([, endpoint]) => endpoint);
    const removed = [...this.#known].filter(([key]) => !now.has(key)).map(([, endpoint]) => endpoint);
    this.#known = now;
    return { added, removed };
  }
}
