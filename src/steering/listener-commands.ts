// The commands of the processes that have listening sockets, found through /proc by the sockets'
// inodes.
//
// All processes with all of their descriptors are looked through, which may take a while: that is
// done only for sockets that are new, in short turns, and for a small share of the time.

import { readdirSync, readFileSync } from 'node:fs';
import { setImmediate } from 'node:timers/promises';
import { Socket } from '../native/index.ts';

const TURN_MS = 2;
/** After a search the next waits until searching has taken no more than this share of the time. */
const MAX_SHARE = 1 / 20;

/** A process that has a socket. */
interface Holder {
  readonly pid: string;
  readonly command: string;
}

export class ListenerCommands {
  readonly #onFound: () => void;
  /** By inode; a socket that no process has, as one of the kernel, has an empty list. */
  readonly #holders = new Map<string, readonly Holder[]>();
  #isSearching = false;
  #nextMs = 0;

  /** `onFound`: commands that were not known are known now. */
  constructor(onFound: () => void) {
    this.#onFound = onFound;
  }

  /** Which sockets there are; what has changed since is looked up from now on. */
  follow(inodes: ReadonlySet<string>): void {
    const commands = new Map<string, string | undefined>();
    const isSame = ({ pid, command }: Holder): boolean => {
      if (!commands.has(pid)) commands.set(pid, commandOf(pid));
      return commands.get(pid) === command;
    };
    for (const [inode, holders] of this.#holders) {
      // A process may become another program, and hand its socket on.
      if (!inodes.has(inode) || !holders.every(isSame)) this.#holders.delete(inode);
    }
    const isNew = Array.from(inodes).some((inode) => !this.#holders.has(inode));
    if (isNew && !this.#isSearching && performance.now() >= this.#nextMs) void this.#search(inodes);
  }

  /** Of all processes that have the socket; '' while none is known. */
  of(inode: string): readonly string[] {
    const holders = this.#holders.get(inode) ?? [];
    return holders.length === 0 ? [''] : holders.map(({ command }) => command);
  }

  async #search(inodes: ReadonlySet<string>): Promise<void> {
    this.#isSearching = true;
    const found = new Map<string, Holder[]>();
    for (const inode of inodes) if ((this.#holders.get(inode)?.length ?? 0) === 0) found.set(inode, []);
    const mount = socketMount();
    let spentMs = 0;
    let startMs = performance.now();
    for (const [pid, inode] of openSockets(mount)) {
      const holders = inode === undefined ? undefined : found.get(inode);
      const command = holders === undefined ? undefined : commandOf(pid);
      if (command !== undefined && holders?.at(-1)?.pid !== pid) holders?.push({ pid, command });
      if (performance.now() - startMs < TURN_MS) continue;
      spentMs += performance.now() - startMs;
      await setImmediate();
      startMs = performance.now();
    }
    for (const [inode, holders] of found) this.#holders.set(inode, holders);
    spentMs += performance.now() - startMs;
    this.#nextMs = performance.now() + spentMs / MAX_SHARE;
    this.#isSearching = false;
    this.#onFound();
  }
}

function commandOf(pid: string): string | undefined {
  try {
    return readFileSync(`/proc/${pid}/comm`, 'utf8').replace(/\n$/, '');
  } catch {
    // It has ended.
    return undefined;
  }
}

/**
 * All descriptors of other processes: the process, and the inode if it is a socket. They are read
 * from fdinfo, because fd is closed to a daemon that has given up the right to read what is not its
 * own.
 */
function* openSockets(mount: string): Generator<readonly [string, string | undefined]> {
  const own = String(process.pid);
  for (const pid of readdirSync('/proc')) {
    if (!/^\d+$/.test(pid) || pid === own) continue;
    for (const fd of descriptorsOf(pid)) {
      const info = descriptorInfo(pid, fd);
      yield [pid, info?.mount === mount ? info.inode : undefined];
    }
  }
}

function descriptorsOf(pid: string): readonly string[] {
  try {
    return readdirSync(`/proc/${pid}/fdinfo`);
  } catch {
    // It has ended, or is none of ours to look at.
    return [];
  }
}

function descriptorInfo(pid: string, fd: string): { readonly mount: string; readonly inode: string } | undefined {
  try {
    const match = /^mnt_id:\s*(\d+)\nino:\s*(\d+)$/m.exec(readFileSync(`/proc/${pid}/fdinfo/${fd}`, 'latin1'));
    return match === null ? undefined : { mount: match[1] ?? '', inode: match[2] ?? '' };
  } catch {
    // Closed meanwhile.
    return undefined;
  }
}

/** Inodes are numbers of one file system each: all sockets are in this one. */
function socketMount(): string {
  using socket = Socket.stream('ipv4');
  return descriptorInfo('self', String(socket.fd))?.mount ?? '';
}
