// The program in a guest that runs commands for the host. It imports only files that the image has
// too (agent-files.ts).

import { type ChildProcess, type StdioOptions, spawn } from 'node:child_process';
import { closeSync, existsSync, mkdirSync, openSync, readdirSync, rmdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import type { CommandPipe, PipePool } from './agent-pipes.ts';
import { type ExitMessage, encodeFrame, type Frame, type FrameType, type StartMessage } from './frames.ts';

/** Enters the cgroup before the command starts, so that no child escapes it. */
const enterScript = 'echo 0 > "$1/cgroup.procs" || exit 126; shift; exec "$@"';
/**
 * Processes of a killed cgroup end within milliseconds; only one that has left it could keep a pipe
 * open for longer.
 */
const drainTimeoutMs = 2000;

/** Sends a frame to the host. Resolves when the next one may be sent. */
export type Send = (frame: Uint8Array) => Promise<void>;

type SendOutput = (type: FrameType, payload: Uint8Array) => Promise<void>;

export class Agent {
  readonly #send: Send;
  readonly #pipes: PipePool;
  readonly #cgroupRoot: string;
  readonly #commands = new Map<number, Command>();

  constructor(send: Send, pipes: PipePool, cgroupRoot = '/sys/fs/cgroup') {
    this.#send = send;
    this.#pipes = pipes;
    this.#cgroupRoot = cgroupRoot;
  }

  receive({ type, id, payload }: Frame): void {
    if (type === 'start') this.#start(id, JSON.parse(payload.toString()) as StartMessage);
    const command = this.#commands.get(id);
    // The command may have ended already.
    if (command === undefined) return;
    if (type === 'kill') command.kill();
    if (type === 'input') command.input(payload);
  }

  #start(id: number, message: StartMessage): void {
    const send = (type: FrameType, payload: Uint8Array | string): Promise<void> =>
      this.#send(encodeFrame(type, id, payload));
    const command = new Command(message, join(this.#cgroupRoot, `command-${id}`), this.#pipes, send);
    this.#commands.set(id, command);
    void command.ended.then((exit) => {
      this.#commands.delete(id);
      return send('exit', JSON.stringify(exit));
    });
  }
}

/** A command and all processes that it started: they are in one cgroup and end together. */
class Command {
  /** Settles when all of its output was sent and none of its processes is left. */
  readonly ended: Promise<ExitMessage>;
  readonly #cgroup: string;
  readonly #pipes: PipePool;
  readonly #input: CommandInput;
  #child: ChildProcess | null = null;

  constructor(message: StartMessage, cgroup: string, pipes: PipePool, send: SendOutput) {
    this.#cgroup = cgroup;
    this.#pipes = pipes;
    this.#input = new CommandInput(message.hasInput ? pipes.folder : null);
    this.ended = this.#run(message, send).catch((error: unknown) => ({
      code: null,
      signal: null,
      error: error instanceof Error ? error.message : String(error),
    }));
  }

  async #run({ words, env, cwds }: StartMessage, send: SendOutput): Promise<ExitMessage> {
    using input = this.#input;
    const cwd = cwds.find((path) => existsSync(path));
    if (cwd === undefined) throw new Error(`the working directory ${cwds.join(' or ')} does not exist`);
    if (!(await input.complete)) return { code: null, signal: 'SIGKILL', error: null };
    mkdirSync(this.#cgroup);
    const pipes = [this.#pipes.output(), this.#pipes.output()] as const;
    const [stdout, stderr] = pipes;
    try {
      const stdio: StdioOptions = [input.fd ?? 'ignore', stdout.fd, stderr.fd];
      const child = spawn('/bin/sh', ['-c', enterScript, 'sh', this.#cgroup, ...words], { cwd, env, stdio });
      this.#child = child;
      for (const { fd } of pipes) closeSync(fd);
      const copied = Promise.all([
        copy(stdout.stream, (chunk) => send('stdout', chunk)),
        copy(stderr.stream, (chunk) => send('stderr', chunk)),
      ]);
      const result = await exitOf(child);
      this.kill();
      const timer = setTimeout(() => {
        for (const { stream } of pipes) stream.destroy();
      }, drainTimeoutMs);
      await copied;
      clearTimeout(timer);
      return result;
    } finally {
      await Promise.all(pipes.map((pipe) => this.#giveBack(pipe)));
      removeTree(this.#cgroup);
    }
  }

  async #giveBack(pipe: CommandPipe): Promise<void> {
    const { stream } = pipe;
    const { promise, resolve } = Promise.withResolvers<void>();
    if (stream.closed) resolve();
    else stream.once('close', resolve);
    stream.destroy();
    await promise;
    this.#pipes.giveBack(pipe);
  }

  input(chunk: Uint8Array): void {
    this.#input.add(chunk);
  }

  /** Kills the command, its children, and all processes in cgroups below its own. */
  kill(): void {
    this.#input.giveUp();
    try {
      writeFileSync(join(this.#cgroup, 'cgroup.kill'), '1');
    } catch {
      // It is gone already.
    }
    // It may not have entered its cgroup yet.
    this.#child?.kill('SIGKILL');
  }
}

/** An unlinked file: a command may open it again as /dev/stdin, and reads all of it. */
class CommandInput implements Disposable {
  /** True when the whole input has arrived, false when it never will. */
  readonly complete: Promise<boolean>;
  /** The file that the command reads; null for /dev/null. */
  readonly fd: number | null = null;
  readonly #writer: number | null = null;
  readonly #settle: (isComplete: boolean) => void;

  constructor(folder: string | null) {
    const { promise, resolve } = Promise.withResolvers<boolean>();
    this.complete = promise;
    this.#settle = resolve;
    if (folder === null) {
      resolve(true);
      return;
    }
    const path = join(folder, 'input');
    this.#writer = openSync(path, 'wx', 0o600);
    this.fd = openSync(path, 'r');
    rmSync(path);
  }

  /** An empty chunk is the end. */
  add(chunk: Uint8Array): void {
    if (chunk.length === 0) this.#settle(true);
    else if (this.#writer !== null) writeFileSync(this.#writer, chunk);
  }

  giveUp(): void {
    this.#settle(false);
  }

  [Symbol.dispose](): void {
    for (const fd of [this.fd, this.#writer]) if (fd !== null) closeSync(fd);
  }
}

async function exitOf(child: ChildProcess): Promise<ExitMessage> {
  const { promise, resolve, reject } = Promise.withResolvers<ExitMessage>();
  child.on('error', reject);
  child.on('exit', (code, signal) => resolve({ code, signal, error: null }));
  return promise;
}

/** Reads output no faster than the host takes it. */
async function copy(stream: Readable, send: (chunk: Uint8Array) => Promise<void>): Promise<void> {
  try {
    for await (const chunk of stream) await send(chunk as Uint8Array);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_STREAM_PREMATURE_CLOSE') throw error;
  }
}

/**
 * Killed processes take a moment to leave a cgroup, and the kernel refuses its removal until then;
 * what stays ends with the guest.
 */
function removeTree(cgroup: string): void {
  try {
    for (const entry of readdirSync(cgroup, { withFileTypes: true })) {
      if (entry.isDirectory()) removeTree(join(cgroup, entry.name));
    }
    rmdirSync(cgroup);
  } catch {
    // Ids are never used twice, so an empty cgroup that stays does no harm.
  }
}
