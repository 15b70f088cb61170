// A program that runs in a host until the test ends it: the lines it prints, and its end by its own
// pid.

import type { ChildProcess, SpawnOptions } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import type { Host } from '../../src/lab/index.ts';
import { TIMEOUT_MS } from './eventually.ts';

/** After this a program that was asked to end is killed. */
const GRACE_MS = 5000;
/** A daemon of a soak says a lot. */
const KEPT_CHARS = 4_000_000;

export interface StartOptions extends Omit<SpawnOptions, 'stdio'> {
  readonly endWith?: NodeJS.Signals;
  /** The test writes lines to it. */
  readonly isWritable?: boolean;
}

export class RunningProgram implements AsyncDisposable {
  readonly pid: number;
  readonly #child: ChildProcess;
  readonly #words: string;
  readonly #endWith: NodeJS.Signals;
  readonly #lines: string[] = [];
  readonly #exit: Promise<unknown>;
  #news = Promise.withResolvers<void>();
  #hasExited = false;
  /** It has ended, and all that it said has been read: that can come later. */
  #hasSaidAll = false;
  readonly #listeners: ((line: string) => void)[] = [];
  #stderr = '';

  static start(host: Host, command: string, args: readonly string[], options: StartOptions = {}): RunningProgram {
    const { endWith = 'SIGTERM', isWritable = false, ...rest } = options;
    // Not always: some servers take a standard input that is open for a connection.
    const child = host.spawn(command, args, { ...rest, stdio: [isWritable ? 'pipe' : 'ignore', 'pipe', 'pipe'] });
    return new RunningProgram(child, `${command} ${args.join(' ')}`, endWith);
  }

  private constructor(child: ChildProcess, words: string, endWith: NodeJS.Signals) {
    if (child.stdout === null || child.stderr === null || child.pid === undefined) throw new Error(`no ${words}`);
    this.pid = child.pid;
    this.#child = child;
    this.#words = words;
    this.#endWith = endWith;
    // A program that has ended reads no more; its end is noticed elsewhere.
    child.stdin?.on('error', () => {});
    createInterface({ input: child.stdout }).on('line', (line) => {
      this.#lines.push(line);
      this.#tell();
    });
    createInterface({ input: child.stderr }).on('line', (line) => this.#hear(line));
    this.#exit = once(child, 'exit').then(() => {
      this.#hasExited = true;
    });
    child.once('close', () => {
      this.#hasSaidAll = true;
      this.#tell();
    });
  }

  #tell(): void {
    this.#news.resolve();
    this.#news = Promise.withResolvers();
  }

  /** The end of what it said there. */
  get stderr(): string {
    return this.#stderr;
  }

  /** Told each line of standard error, those before now as well. */
  onErrorLine(listener: (line: string) => void): void {
    for (const line of this.#stderr.split('\n')) if (line !== '') listener(line);
    this.#listeners.push(listener);
  }

  #hear(line: string): void {
    this.#stderr += `${line}\n`;
    if (this.#stderr.length > KEPT_CHARS)
      this.#stderr = this.#stderr.slice(this.#stderr.indexOf('\n', KEPT_CHARS / 2) + 1);
    for (const listener of this.#listeners) listener(line);
    this.#tell();
  }

  get hasExited(): boolean {
    return this.#hasExited;
  }

  /** Null while it runs, and when a signal ended it. */
  get exitCode(): number | null {
    return this.#child.exitCode;
  }

  /** Takes the first line that matches, now or as soon as it is printed. */
  async line(pattern: RegExp, timeoutMs = TIMEOUT_MS): Promise<string> {
    const deadline = AbortSignal.timeout(timeoutMs);
    for (;;) {
      const at = this.#lines.findIndex((line) => pattern.test(line));
      const [found] = at < 0 ? [] : this.#lines.splice(at, 1);
      if (found !== undefined) return found;
      if (this.#hasSaidAll || deadline.aborted) {
        const why = this.#hasSaidAll ? 'it ended' : `${timeoutMs} ms passed`;
        throw new Error(
          `${this.#words}: ${why} without a line like ${pattern}\n${this.#lines.join('\n')}\n${this.#stderr}`,
        );
      }
      await this.#newsUntil(deadline);
    }
  }

  /** Whether it has printed such a line that nobody has taken. */
  hasSaid(pattern: RegExp): boolean {
    return this.#lines.some((line) => pattern.test(line));
  }

  async #newsUntil(deadline: AbortSignal): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const wake = (): void => resolve();
    deadline.addEventListener('abort', wake, { once: true });
    await Promise.race([this.#news.promise, promise]);
    deadline.removeEventListener('abort', wake);
  }

  /** Writes a line to its standard input. */
  write(line: string): void {
    this.#child.stdin?.write(`${line}\n`);
  }

  /** Sends a signal to the program itself. */
  signal(name: NodeJS.Signals): void {
    this.#child.kill(name);
  }

  async exit(): Promise<void> {
    await this.#exit;
  }

  async close(graceMs: number = GRACE_MS): Promise<void> {
    if (this.#hasExited) return;
    this.#child.kill(this.#endWith);
    const killer = setTimeout(() => this.#child.kill('SIGKILL'), graceMs);
    await this.#exit;
    clearTimeout(killer);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
