// A program of the bench in a lab host that says what it has to say in lines: started, listened to,
// ended by its own pid.

import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createInterface, type Interface } from 'node:readline';
import { MillraceError } from '../../src/errors.ts';
import type { Host } from '../../src/lab/index.ts';

/** After this a program that was asked to end is killed. */
const GRACE_MS = 5000;

export class LineProgram implements AsyncDisposable {
  readonly pid: number;
  readonly #child: ChildProcess;
  readonly #name: string;
  readonly #reader: Interface;
  readonly #lines: AsyncIterator<string>;
  readonly #exited: Promise<unknown>;
  readonly #closed: Promise<unknown>;
  #stderr = '';

  constructor(host: Host, command: string, args: readonly string[]) {
    const child = host.spawn(command, args, { stdio: ['pipe', 'pipe', 'pipe'] });
    this.#name = `${command} ${args.join(' ')}`;
    if (child.stdout === null || child.stderr === null || child.pid === undefined) throw this.#failed('did not start');
    this.pid = child.pid;
    this.#child = child;
    this.#exited = once(child, 'exit');
    this.#closed = once(child, 'close');
    // Its end is noticed by what it does not say any more.
    child.stdin?.on('error', () => {});
    child.stderr.on('data', (chunk: Buffer) => {
      this.#stderr += chunk.toString();
    });
    this.#reader = createInterface(child.stdout);
    this.#lines = this.#reader[Symbol.asyncIterator]();
  }

  write(line: string): void {
    this.#child.stdin?.write(`${line}\n`);
  }

  /** The next line; its end, and a signal, are errors. */
  async line(signal: AbortSignal): Promise<string> {
    const stop = (): void => this.#reader.close();
    signal.addEventListener('abort', stop, { once: true });
    try {
      signal.throwIfAborted();
      const { value, done } = await this.#lines.next();
      signal.throwIfAborted();
      if (done !== true) return value;
      await this.#closed; // what it said last is here by then
      signal.throwIfAborted(); // Ctrl-C ends both, in either order
      throw this.#failed('ended');
    } finally {
      signal.removeEventListener('abort', stop);
    }
  }

  #failed(what: string): MillraceError {
    return new MillraceError('MILLRACE_ERR_FAILED', `${this.#name}: it ${what}. ${this.#stderr.trim()}`.trim());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#child.exitCode === null && this.#child.signalCode === null) this.#child.kill('SIGTERM');
    const killer = setTimeout(() => this.#child.kill('SIGKILL'), GRACE_MS);
    await this.#exited;
    clearTimeout(killer);
  }
}
