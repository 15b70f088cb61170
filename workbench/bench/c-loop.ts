// The C entrant of native.*: runs the loops of workbench/bench/c/loop.c.

import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { MillraceError } from '../../src/errors.ts';
import { compiled } from './compiled.ts';
import type { LoopJob } from './native.ts';

export class CLoop implements AsyncDisposable {
  readonly #child: ChildProcessByStdio<Writable, Readable, null>;
  readonly #lines: AsyncIterator<string>;

  static async start(signal: AbortSignal): Promise<CLoop> {
    return new CLoop(spawn(await compiled('loop', signal), [], { stdio: ['pipe', 'pipe', 'inherit'] }));
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
