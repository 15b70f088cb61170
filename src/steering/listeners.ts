// The listeners of this host, from the kernel's tables, and where other hosts reach them.

import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import { SystemError } from '../errors.ts';
import { listeningSockets } from '../native/index.ts';
import { addressWords, hostOf } from './ip-endpoint.ts';
import type { IpEndpoint } from './layouts.ts';

const LISTEN = '0A';
const MAX_KNOWN = 4096;
const anyAddress = new Set(['0.0.0.0', '::']);

export interface ListeningSocket extends IpEndpoint {
  readonly inode: string;
}

/** The listeners in /proc/net/tcp or tcp6, without sockets whose inodes are left out. */
export function parseListeners(text: string, isLeftOut?: (inode: string) => boolean): readonly ListeningSocket[] {
  const listeners: ListeningSocket[] = [];
  for (const line of text.split('\n').slice(1)) {
    const [, local = '', , state, , , , , , inode = ''] = line.trim().split(/\s+/);
    const [words = '', port = ''] = local.split(':');
    if (state !== LISTEN || isLeftOut?.(inode) === true) continue;
    // The kernel prints the words of the address as it has them in memory.
    const address = (words.match(/.{8}/g) ?? []).map((word) => Number.parseInt(word, 16));
    listeners.push({ address: wholeAddress(address), port: Number.parseInt(port, 16), inode });
  }
  return listeners;
}

/** All listeners of this network namespace. Several sockets may have one address and port. */
export function scanListeners(isLeftOut?: (inode: string) => boolean): readonly ListeningSocket[] {
  try {
    return (['ipv4', 'ipv6'] as const).flatMap((family) =>
      listeningSockets(family)
        .map(({ address, port, inode }) => ({ address: wholeAddress(address), port, inode: String(inode) }))
        .filter(({ inode }) => isLeftOut?.(inode) !== true),
    );
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    // A kernel without sock_diag, or a host that does not allow it.
    return readTables(isLeftOut);
  }
}

/** The same from files, which takes long on a machine with a large table of connections. */
export function readTables(isLeftOut?: (inode: string) => boolean): readonly ListeningSocket[] {
  return ['/proc/thread-self/net/tcp', '/proc/thread-self/net/tcp6'].flatMap((file) => {
    try {
      return parseListeners(readFileSync(file, 'utf8'), isLeftOut);
    } catch {
      // A kernel without IPv6.
      return [];
    }
  });
}

/** An address of IPv4 is mapped. */
function wholeAddress(words: readonly number[]): readonly number[] {
  return words.length === 1 ? [0, 0, 0xffff_0000, words[0] ?? 0] : words;
}

/** This process's own listeners: a daemon listens for peers, and its devices do. */
export class OwnListeners {
  /** By inode. A process has thousands of sockets, so each listener is looked up only once. */
  readonly #known = new Map<string, boolean>();
  /** Those of this process, for all listeners that are new in one scan. */
  #sockets: ReadonlySet<string> | undefined;

  /** A scan begins. */
  begin(): void {
    this.#sockets = undefined;
  }

  has(inode: string): boolean {
    let isOwn = this.#known.get(inode);
    if (isOwn === undefined) {
      this.#sockets ??= ownSockets();
      isOwn = this.#sockets.has(inode);
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

/**
 * Where other hosts reach a listener: one on every address is reached at each address of this host.
 */
export function reachableAt(listener: IpEndpoint, addresses: readonly string[]): readonly IpEndpoint[] {
  const host = hostOf(listener.address);
  if (!anyAddress.has(host)) return [listener];
  // A socket on :: accepts IPv4, too, unless it has IPV6_V6ONLY; then a carried connect is refused
  // as by plain TCP.
  return addresses
    .filter((address) => host === '::' || !address.includes(':'))
    .map((address) => ({ address: addressWords(address), port: listener.port }));
}

/**
 * The addresses of all interfaces in the network namespace of the calling thread, by which other
 * hosts may know it: without loopback and link-local ones.
 */
export function ownAddresses(): readonly string[] {
  return Object.values(interfaces())
    .flatMap((list) => list ?? [])
    .map(({ address }) => address)
    .filter((address) => !isHostLocal(address));
}

/** Node names no error of it. */
function interfaces(): ReturnType<typeof networkInterfaces> {
  try {
    return networkInterfaces();
  } catch (error) {
    const { info } = error as { readonly info?: { readonly errno: number } };
    throw info === undefined ? error : new SystemError(-Math.abs(info.errno), 'getifaddrs');
  }
}

/** Whether an address means something else on each host or link. */
export function isHostLocal(host: string): boolean {
  return host.startsWith('127.') || host === '::1' || /^fe[89ab]/.test(host);
}
