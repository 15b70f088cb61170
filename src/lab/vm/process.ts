// QEMU as a child that cannot outlive its parent, with the streams to the guest.

import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process';
import type { Duplex } from 'node:stream';
import { requireTool } from '../index.ts';
import { ConsoleTail } from './console.ts';

/**
 * setpriv makes the kernel kill the process when its parent dies. If the parent died before that,
 * the shell has another parent by now, and starts nothing.
 */
const startScript = '[ "$PPID" = "$1" ] || exit 1; shift; exec "$@"';

type Spawn = (command: string, args: readonly string[], options: SpawnOptions) => ChildProcess;

export interface QemuExit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

export class QemuProcess {
  readonly console = new ConsoleTail();
  /** QEMU's standard error. */
  readonly complaints = new ConsoleTail();
  /** Never rejects. */
  readonly exited: Promise<QemuExit>;
  readonly agentStream: Duplex;
  readonly #child: ChildProcess;

  /** `fds` become descriptors 4, 5 and so on of QEMU; 3 is the agent's. */
  constructor(args: readonly string[], fds: readonly number[], start: Spawn = spawn) {
    const qemu = requireTool('qemu-system-x86_64', 'qemu-system-x86');
    const setpriv = requireTool('setpriv', 'util-linux');
    const words = ['--pdeathsig', 'KILL', '/bin/sh', '-c', startScript, 'sh', String(process.pid), qemu, ...args];
    const child = start(setpriv, words, {
      stdio: ['ignore', 'pipe', 'pipe', 'pipe', ...fds],
      // Detached, because Ctrl-C on a terminal is for this process, which then ends the guest in
      // order.
      detached: true,
    });
    this.#child = child;
    child.stdout?.on('data', (chunk: Buffer) => this.console.add(chunk));
    child.stderr?.on('data', (chunk: Buffer) => this.complaints.add(chunk));
    this.agentStream = child.stdio[3] as Duplex;
    const { promise, resolve } = Promise.withResolvers<QemuExit>();
    child.on('error', (error) => {
      this.complaints.add(Buffer.from(error.message));
      if (child.pid === undefined) resolve({ code: null, signal: null });
    });
    child.on('close', (code, signal) => resolve({ code, signal }));
    this.exited = promise;
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  async kill(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.exited;
    this.agentStream.destroy();
  }
}
