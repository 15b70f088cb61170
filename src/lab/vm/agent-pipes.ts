// Pipes for the output of commands. Node's own are sockets, which a command cannot open as
// /dev/stderr.

import { spawnSync } from 'node:child_process';
import { constants, openSync } from 'node:fs';
import { Socket } from 'node:net';
import { join } from 'node:path';

const { O_NONBLOCK, O_RDONLY, O_WRONLY } = constants;
/** Pipes that one mkfifo creates, since each start of a program costs time; a command takes two. */
const madeAtOnce = 12;

export interface CommandPipe {
  /** The agent's end. */
  readonly stream: Socket;
  /** The command's end; close it once the command has started. */
  readonly fd: number;
  /** Its path in the pool. Return it when both ends are closed. */
  readonly path: string;
}

/** Named pipes, which Node can open; an empty one that is not open anywhere can be used again. */
export class PipePool {
  readonly #dir: string;
  readonly #free: string[] = [];
  #made = 0;

  constructor(dir: string) {
    this.#dir = dir;
  }

  /** Other files of commands go there too. */
  get folder(): string {
    return this.#dir;
  }

  /** A pipe that the command writes and the agent reads. */
  output(): CommandPipe {
    const path = this.#take();
    // The reader is opened first, without waiting for a writer; then the writer need not wait
    // either.
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
    if (path === undefined) throw new Error(`create named pipes in ${this.#dir}: mkfifo made none`);
    return path;
  }

  #make(): void {
    const paths = Array.from({ length: madeAtOnce }, () => join(this.#dir, `pipe-${++this.#made}`));
    const { status } = spawnSync('mkfifo', ['-m', '600', ...paths]);
    if (status === 0) this.#free.push(...paths);
  }
}
