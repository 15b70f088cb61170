// The C entrant of native.*: compiles workbench/bench/c/loop.c if needed, and runs its loops.

import { type ChildProcessByStdio, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, rename, stat } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { MillraceError, UnsupportedError } from '../../src/errors.ts';
import type { LoopJob } from './native.ts';

const source = fileURLToPath(new URL('./c/loop.c', import.meta.url));
const buildDir = fileURLToPath(new URL('../../build/bench', import.meta.url));
const binary = `${buildDir}/loop`;

async function build(signal: AbortSignal): Promise<void> {
  const [from, to] = await Promise.all([stat(source), stat(binary).catch(() => undefined)]);
  if (to !== undefined && to.mtimeMs > from.mtimeMs) return;
  const aside = `${binary}.${process.pid}`;
  await mkdir(buildDir, { recursive: true });
  try {
    await promisify(execFile)('cc', ['-O2', '-Wall', '-Wextra', '-Werror', '-D_GNU_SOURCE', source, '-o', aside], {
      signal,
    });
  } catch (error) {
    throw new UnsupportedError('compare with C: the loop did not compile; install the Debian package gcc', {
      cause: error,
    });
  }
  await rename(aside, binary);
}

export class CLoop implements AsyncDisposable {
  readonly #child: ChildProcessByStdio<Writable, Readable, null>;
  readonly #lines: AsyncIterator<string>;

  static async start(signal: AbortSignal): Promise<CLoop> {
    await build(signal);
    return new CLoop(spawn(binary, [], { stdio: ['pipe', 'pipe', 'inherit'] }));
  }

  private constructor(child: ChildProcessByStdio<Writable, Readable, null>) {
    this.#child = child;
    this.#lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  }

  /** ns per iteration. */
  async run({ kind, size, iterations }: LoopJob): Promise<number> {
    this.#child.stdin.write(`${kind} ${size} ${iterations}\n`);
    const { value } = await this.#lines.next();
    const ns = Number(value);
    if (!(ns > 0)) throw new MillraceError('MILLRACE_ERR_FAILED', `the C loop '${kind} ${size}' printed no figure`);
    return ns;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const exited =
      this.#child.exitCode === null && this.#child.signalCode === null ? once(this.#child, 'exit') : undefined;
    this.#child.kill('SIGKILL');
    await exited;
  }
}
