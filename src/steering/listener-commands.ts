// The commands of the processes that have listening sockets, found through /proc by the sockets'
// inodes.
//
// All processes with all of their descriptors are looked through, which may take a while: that is
// done for sockets that are new, and now and then, in short turns and for a small share of the
// time.

import { readdirSync, readFileSync } from 'node:fs';
import { setImmediate } from 'node:timers/promises';
import { Socket } from '../native/index.ts';

const TURN_MS = 2;
/** That a process was handed a socket by another one is found by the next search for all. */
const REPEAT_MS = 30_000;
/** After a search the next waits until searching has taken no more than this share of the time. */
const MAX_SHARE = 1 / 20;

/** A process that has a socket. */
interface Holder {
  readonly pid: string;
  readonly command: string;
}

export class ListenerCommands {
  readonly #onFound: () => void;
  readonly #repeatMs: number;
  /** By inode; a socket that no process has, as one of the kernel, has an empty list. */
  readonly #holders = new Map<string, readonly Holder[]>();
  #isSearching = false;
  #nextMs = 0;

  /** `onFound`: commands that were not known may be known now. */
  constructor(onFound: () => void, repeatMs: number = REPEAT_MS) {
    this.#onFound = onFound;
    this.#repeatMs = repeatMs;
  }

  /** Which sockets there are; what has changed since is looked up from now on. */
  follow(inodes: ReadonlySet<string>): void {
    const commands = new Map<string, string | undefined>();
    const now = ({ pid }: Holder): readonly Holder[] => {
      if (!commands.has(pid)) commands.set(pid, commandOf(pid));
      const command = commands.get(pid);
      return command === undefined ? [] : [{ pid, command }];
    };
    for (const [inode, before] of this.#holders) {
      // A process may have ended, or become another program.
      const holders = before.flatMap(now);
      if (!inodes.has(inode) || holders.length < Math.min(before.length, 1)) this.#holders.delete(inode);
      else this.#holders.set(inode, holders);
    }
    const isNew = Array.from(inodes).some((inode) => !this.#holders.has(inode));
    const dueMs = this.#nextMs + (isNew ? 0 : this.#repeatMs);
    if (inodes.size > 0 && !this.#isSearching && performance.now() >= dueMs) void this.#search(inodes);
  }

  /** Of all processes that have the socket; '' while none is known. */
  of(inode: string): readonly string[] {
    const holders = this.#holders.get(inode) ?? [];
    return holders.length === 0 ? [''] : holders.map(({ command }) => command);
  }

  async #search(inodes: ReadonlySet<string>): Promise<void> {
    this.#isSearching = true;
    const found = new Map(Array.from(inodes, (inode): [string, Holder[]] => [inode, []]));
    let spentMs = 0;
    let startMs = performance.now();
    try {
      for (const [pid, inode] of openSockets(socketMount())) {
        const holders = inode === undefined ? undefined : found.get(inode);
        if (holders !== undefined && holders.at(-1)?.pid !== pid) holders.push({ pid, command: commandOf(pid) ?? '' });
        if (performance.now() - startMs < TURN_MS) continue;
        spentMs += performance.now() - startMs;
        await setImmediate();
        startMs = performance.now();
      }
      for (const [inode, holders] of found) this.#holders.set(inode, holders);
    } catch (error) {
      // This process has no descriptors left: the next search may find all.
      if (!(error instanceof Error && 'code' in error)) throw error;
    }
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
    // It has ended, most likely.
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
  return unlessGone(() => readdirSync(`/proc/${pid}/fdinfo`)) ?? [];
}

function descriptorInfo(pid: string, fd: string): { readonly mount: string; readonly inode: string } | undefined {
  const text = unlessGone(() => readFileSync(`/proc/${pid}/fdinfo/${fd}`, 'latin1'));
  const match = /^mnt_id:\s*(\d+)\nino:\s*(\d+)$/m.exec(text ?? '');
  return match === null ? undefined : { mount: match[1] ?? '', inode: match[2] ?? '' };
}

/** Undefined for what has ended or was closed meanwhile, or is not ours to look at. */
function unlessGone<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : '';
    if (['ENOENT', 'ESRCH', 'EACCES', 'EPERM'].includes(code)) return undefined;
    throw error;
  }
}

/** Inodes are numbers of one file system each: all sockets are in this one. */
function socketMount(): string {
  using socket = Socket.stream('ipv4');
  return descriptorInfo('self', String(socket.fd))?.mount ?? '';
}
