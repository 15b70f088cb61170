// Follows what listens on this host, at the addresses where other hosts reach it.

import { unlessShort } from '../errors.ts';
import { type Fd, inNetns, netnsCookie } from '../native/index.ts';
import { PacedTask } from '../pace/index.ts';
import { formatIpEndpoint, hostOf } from './ip-endpoint.ts';
import type { Event } from './layouts.ts';
import { eventKinds, type IpEndpoint } from './layouts.ts';
import { ListenerCommands } from './listener-commands.ts';
import { isHostLocal, type ListeningSocket, OwnListeners, reachableAt, scanListeners } from './listeners.ts';
import { SteadyAddresses } from './steady-addresses.ts';

/**
 * Listeners outside the cgroup, and addresses that come and go, raise no event, so the tables are
 * scanned at this interval.
 */
const SCAN_MS = 1000;
/**
 * A scan of thousands of sockets takes a while: scanning never takes more than this share of the
 * time.
 */
const MAX_SHARE = 1 / 1000;
/**
 * The same of scans that events ask for, and of what follows from them. A program that listens and
 * closes a thousand times a second is told of as fast as that allows.
 */
const MAX_EVENT_SHARE = 1 / 80;
const LEAST_PAUSE_MS = 5;
/** To tell a thousand peers takes long enough for a long pause: all are to know within a second. */
const MOST_PAUSE_MS = 400;
/** Of the processor: some scans one after the other need not wait, also with a thousand peers. */
const SAVED_MS = 40;

/** Where other hosts reach servers of this host. */
export interface Listener {
  readonly endpoint: IpEndpoint;
  /** The network namespace that they are in. */
  readonly netns: number;
  /** Of all processes that have a socket there; '' for a socket of which none is known. */
  readonly commands: readonly string[];
  /** All sockets there are of programs that have the library of direct connections. */
  readonly hasLibrary: boolean;
}

/** A network namespace besides the daemon's own. */
interface OtherNetns {
  readonly netns: number;
  readonly fd: Fd;
  readonly addresses: readonly string[];
}

export interface ListenerFollower extends Disposable {
  /** Pass it every event of the steering. */
  onEvent(event: Event): void;
  scan(): void;
  /** One scan serves many of these. */
  scanSoon(): void;
}

interface FollowerOptions {
  /** Called at once, and then after each scan, with the addresses of this host as well. */
  readonly onListeners: (listeners: readonly Listener[], addresses: readonly string[]) => void;
  /** Whether the commands are wanted in the next scan. */
  readonly needsCommands: () => boolean;
  /** Whether a socket is one of a program that has the library. */
  readonly hasLibrary: (inode: string) => boolean;
  /** Where to look besides. */
  readonly others: () => Iterable<OtherNetns>;
}

/** This process's own listeners are left out. */
export function followListeners(options: FollowerOptions): ListenerFollower {
  const { onListeners, needsCommands, hasLibrary, others } = options;
  const own = new OwnListeners();
  const netns = netnsCookie();
  const addresses = new SteadyAddresses();
  let timer: NodeJS.Timeout | undefined;
  const scan = (): void => {
    if (unlessShort(look) !== undefined) return;
    // What was found before counts until there are descriptors again.
    clearTimeout(timer);
    timer = setTimeout(() => task.run(), SCAN_MS);
  };
  const look = (): true => {
    const startMs = performance.now();
    own.begin();
    const find = (): readonly ListeningSocket[] => scanListeners((inode) => own.has(inode));
    const here = addresses.read();
    const places = [{ netns, addresses: here, sockets: find() }];
    for (const other of others()) places.push({ ...other, sockets: inNetns(other.fd, find) });
    const isNeeded = needsCommands();
    if (isNeeded) commands.follow(new Set(places.flatMap(({ sockets }) => sockets.map(({ inode }) => inode))));
    const commandsOf = (inode: string): readonly string[] => (isNeeded ? commands.of(inode) : ['']);
    onListeners(
      places.flatMap((place) => mergeSockets(place, commandsOf, hasLibrary)),
      here,
    );
    clearTimeout(timer);
    timer = setTimeout(() => task.run(), Math.max(SCAN_MS, (performance.now() - startMs) / MAX_SHARE));
    return true;
  };
  const task = new PacedTask({
    run: scan,
    leastPauseMs: LEAST_PAUSE_MS,
    mostPauseMs: MOST_PAUSE_MS,
    maxShare: MAX_EVENT_SHARE,
    savedMs: SAVED_MS,
  });
  const commands = new ListenerCommands(() => task.request());
  task.run();
  return {
    onEvent: ({ kind }) => {
      // Later, since the kernel has to finish first what it tells of.
      if (kind === eventKinds.listen || kind === eventKinds.unlisten) task.request();
    },
    scan: () => task.run(),
    scanSoon: () => task.request(),
    [Symbol.dispose]: () => {
      task[Symbol.dispose]();
      clearTimeout(timer);
    },
  };
}

/** Several sockets may be reached at one endpoint. Which of them gets a connection is not known. */
function mergeSockets(
  { netns, addresses, sockets }: Omit<OtherNetns, 'fd'> & { readonly sockets: readonly ListeningSocket[] },
  commandsOf: (inode: string) => readonly string[],
  hasLibrary: (inode: string) => boolean,
): readonly Listener[] {
  const listeners = new Map<string, Listener>();
  for (const socket of sockets) {
    for (const endpoint of reachableAt(socket, addresses)) {
      if (isHostLocal(hostOf(endpoint.address))) continue;
      const key = formatIpEndpoint(endpoint);
      const before = listeners.get(key) ?? { commands: [], hasLibrary: true };
      const commands = [...new Set([...before.commands, ...commandsOf(socket.inode)])];
      listeners.set(key, { endpoint, netns, commands, hasLibrary: before.hasLibrary && hasLibrary(socket.inode) });
    }
  }
  return [...listeners.values()];
}
