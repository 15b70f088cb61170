// Which processes have the library, and which sockets they listen at: connects from one such
// program to another are left alone by steering, so that they can become direct.

/** Who wants to know. */
export interface LibraryNews {
  /** A process has the library and talks with the daemon, or does not any more. */
  readonly onProcess: (pid: number, isThere: boolean) => void;
  /** Another socket, or one less, is that of a program with the library. */
  readonly onListeners: () => void;
}

interface LibraryProgram {
  readonly id: number;
  readonly pid: number;
}

/** Of a program. The oldest ones are forgotten: connects to those are carried. */
const MAX_LISTENERS = 1024;

export class LibraryPrograms {
  readonly #news: LibraryNews;
  readonly #pids = new Map<number, number>();
  /** Inodes of listening sockets, by program. */
  readonly #listeners = new Map<number, Set<string>>();

  constructor(news: LibraryNews) {
    this.#news = news;
  }

  add({ id, pid }: LibraryProgram): void {
    this.#listeners.set(id, new Set());
    this.#pids.set(pid, (this.#pids.get(pid) ?? 0) + 1);
    this.#news.onProcess(pid, true);
  }

  listens({ id }: LibraryProgram, inode: string): void {
    const inodes = this.#listeners.get(id);
    if (inodes === undefined || inodes.has(inode)) return;
    inodes.add(inode);
    const [oldest = ''] = inodes;
    if (inodes.size > MAX_LISTENERS) inodes.delete(oldest);
    this.#news.onListeners();
  }

  /** Nothing happens when it never said hello. */
  remove({ id, pid }: LibraryProgram): void {
    const inodes = this.#listeners.get(id);
    if (inodes === undefined) return;
    this.#listeners.delete(id);
    if (inodes.size > 0) this.#news.onListeners();
    const others = (this.#pids.get(pid) ?? 1) - 1;
    if (others > 0) {
      // A process that became another program has two conversations for a moment.
      this.#pids.set(pid, others);
      return;
    }
    this.#pids.delete(pid);
    this.#news.onProcess(pid, false);
  }

  hasListener(inode: string): boolean {
    return this.#listeners.values().some((inodes) => inodes.has(inode));
  }
}
