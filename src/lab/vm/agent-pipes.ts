// Pipes for what commands say. Node's own are sockets, and those nobody can open as /dev/stderr.

import { spawnSync } from 'node:child_process';
import { constants, openSync } from 'node:fs';
import { Socket } from 'node:net';
import { join } from 'node:path';

const { O_NONBLOCK, O_RDONLY, O_WRONLY } = constants;
/** A program start each; a command takes two pipes. */
const madeAtOnce = 12;

export interface CommandPipe {
  /** The agent's end. */
  readonly stream: Socket;
  /** The command's end; close it once the command has it. */
  readonly fd: number;
  /** Its name in the pool. Give it back when both ends are closed. */
  readonly path: string;
}

/** Named pipes: Node can open those, and an empty one that nobody has open is as good as new. */
export class PipePool {
  readonly #dir: string;
  readonly #free: string[] = [];
  #made = 0;

  constructor(dir: string) {
    this.#dir = dir;
  }

  /** For other files of commands, too. */
  get folder(): string {
    return this.#dir;
  }

  /** What the command writes, the agent reads. */
  output(): CommandPipe {
    const path = this.#take();
    // The reader first, without waiting for a writer; then the writer need not wait either.
    const ours = openSync(path, O_RDONLY | O_NONBLOCK);
    const fd = openSync(path, O_WRONLY);
    return { stream: new Socket({ fd: ours, readable: true, writable: false }), fd, path };
  }

  giveBack({ path }: CommandPipe): void {
    this.#free.push(path);
  }

  #take(): string {
    if (this.#free.length === 0) this.#make();
    const path = this.#free.pop();
    if (path === undefined) throw new Error(`no named pipes can be made in ${this.#dir}`);
    return path;
  }

  #make(): void {
    const paths = Array.from({ length: madeAtOnce }, () => join(this.#dir, `pipe-${++this.#made}`));
    const { status } = spawnSync('mkfifo', ['-m', '600', ...paths]);
    if (status === 0) this.#free.push(...paths);
  }
}
