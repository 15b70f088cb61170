// The host's side of a guest's agent: starts commands, sorts their output, and reports how they
// ended.

import { constants } from 'node:os';
import type { Duplex } from 'node:stream';
import { MillraceError, UsageError } from '../../errors.ts';
import {
  type ExitMessage,
  encodeFrame,
  type Frame,
  FrameDecoder,
  maxPayloadBytes,
  protocolVersion,
  type ReadyMessage,
} from './frames.ts';

type OutputName = 'stdout' | 'stderr';

export interface RunOptions {
  /** Ends the command, with everything it started, and the run with an error. */
  readonly timeoutMs?: number;
  /** Added to the few variables every command gets (PATH, HOME, LANG, TERM). */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** Default: that of this process if it exists in the guest, otherwise /. */
  readonly cwd?: string;
  /** The standard input of the command. */
  readonly input?: string | Uint8Array;
  readonly onOutput?: (chunk: Uint8Array, stream: OutputName) => void;
  /** False: output goes to `onOutput` only, without a limit. */
  readonly isCaptured?: boolean;
  /** Kills the command, with everything it started. */
  readonly signal?: AbortSignal;
}

export interface CommandResult {
  /** The exit status; as in a shell, 128 plus the signal's number when a signal ended it. */
  readonly status: number;
  readonly signal: string | null;
  readonly stdout: string;
  readonly stderr: string;
}

interface Running {
  readonly output: Readonly<Record<OutputName, Buffer[]>>;
  capturedBytes: number;
  readonly options: RunOptions;
  readonly attempt: string;
  readonly settle: (exit: ExitMessage) => void;
  readonly reject: (error: unknown) => void;
  /** Why it was killed: the error of the run once the guest has reported its end. */
  blame: unknown;
  killTimer: NodeJS.Timeout | undefined;
}

const baseEnv = { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', HOME: '/root', LANG: 'C.UTF-8', TERM: 'dumb' } as const;
const maxCapturedBytes = 64 * 1024 * 1024;
/** How long the agent may take to report the end of a killed command; much, for busy machines. */
const killTimeoutMs = 20_000;
const shownLines = 20;

export class AgentClient {
  readonly ready: Promise<ReadyMessage>;
  readonly #stream: Duplex;
  readonly #guestName: string;
  readonly #settleReady: PromiseWithResolvers<ReadyMessage>;
  readonly #running = new Map<number, Running>();
  #nextId = 1;
  #failure: Error | null = null;

  constructor(stream: Duplex, guestName: string) {
    this.#stream = stream;
    this.#guestName = guestName;
    this.#settleReady = Promise.withResolvers();
    this.ready = this.#settleReady.promise;
    // A program that does not await `ready` gets the failure with its first command.
    this.ready.catch(() => {});
    const decoder = new FrameDecoder();
    stream.on('data', (chunk: Buffer) => {
      try {
        for (const frame of decoder.push(chunk)) this.#receive(frame);
      } catch (error) {
        stream.pause();
        this.fail(this.#error(`its agent violated the protocol: ${(error as Error).message}`));
      }
    });
    // The exit of QEMU calls fail() with the reason.
    stream.on('error', () => {});
  }

  /** The guest is gone: all commands end with this error, and so do later ones. */
  fail(error: Error): void {
    this.#failure ??= error;
    this.#settleReady.reject(this.#failure);
    for (const command of this.#running.values()) command.reject(this.#failure);
    this.#running.clear();
  }

  async run(words: readonly string[], options: RunOptions = {}): Promise<CommandResult> {
    const { signal, timeoutMs, input } = options;
    const attempt = `run ${words.join(' ')} in guest ${this.#guestName}`;
    const start = startMessage(words, options, attempt);
    signal?.throwIfAborted();
    if (this.#failure !== null) throw this.#failure;
    const id = this.#nextId++;
    const { promise, resolve, reject } = Promise.withResolvers<ExitMessage>();
    const command: Running = {
      output: { stdout: [], stderr: [] },
      capturedBytes: 0,
      options,
      attempt,
      settle: resolve,
      reject,
      blame: undefined,
      killTimer: undefined,
    };
    this.#running.set(id, command);
    const onAbort = (): void => this.#kill(id, signal?.reason);
    const onTimeout = (): void => this.#kill(id, timeoutError(command, timeoutMs ?? 0));
    const timer = timeoutMs === undefined ? undefined : setTimeout(onTimeout, timeoutMs);
    signal?.addEventListener('abort', onAbort, { once: true });
    try {
      this.#stream.write(encodeFrame('start', id, start));
      if (input !== undefined) this.#sendInput(id, typeof input === 'string' ? Buffer.from(input) : input);
      const exit = await promise;
      if (command.blame !== undefined) throw command.blame;
      if (exit.error !== null) throw new UsageError(`${attempt}: ${exit.error}`);
      return resultOf(command, exit);
    } finally {
      clearTimeout(timer);
      clearTimeout(command.killTimer);
      signal?.removeEventListener('abort', onAbort);
      this.#running.delete(id);
    }
  }

  #sendInput(id: number, input: Uint8Array): void {
    for (let at = 0; at < input.length; at += maxPayloadBytes) {
      this.#stream.write(encodeFrame('input', id, input.subarray(at, at + maxPayloadBytes)));
    }
    this.#stream.write(encodeFrame('input', id));
  }

  /** The run ends when the guest confirms that no process of the command is left. */
  #kill(id: number, blame: unknown): void {
    const command = this.#running.get(id);
    if (command === undefined || command.blame !== undefined) return;
    command.blame = blame;
    this.#stream.write(encodeFrame('kill', id));
    command.killTimer = setTimeout(() => {
      command.reject(this.#error(`it did not confirm within ${killTimeoutMs} ms that a command was killed`));
    }, killTimeoutMs);
  }

  #receive({ type, id, payload }: Frame): void {
    if (type === 'ready') {
      this.#receiveReady(payload);
      return;
    }
    const command = this.#running.get(id);
    // The run has ended already.
    if (command === undefined) return;
    if (type === 'stdout' || type === 'stderr') this.#receiveOutput(id, command, payload, type);
    else if (type === 'exit') command.settle(parseExit(payload));
    else throw new RangeError(`a frame ${type} from a guest`);
  }

  #receiveReady(payload: Buffer): void {
    const { version, kernel, problems } = JSON.parse(payload.toString()) as Partial<
      Record<keyof ReadyMessage, unknown>
    >;
    if (version !== protocolVersion || typeof kernel !== 'string' || typeof problems !== 'string') {
      throw new RangeError('its ready message is of another version');
    }
    this.#settleReady.resolve({ version, kernel, problems });
  }

  #receiveOutput(id: number, command: Running, payload: Buffer, stream: OutputName): void {
    try {
      command.options.onOutput?.(payload, stream);
    } catch (error) {
      this.#kill(id, error);
    }
    if (command.options.isCaptured === false) return;
    command.capturedBytes += payload.length;
    if (command.capturedBytes <= maxCapturedBytes) command.output[stream].push(payload);
    else this.#kill(id, this.#error(`a command said more than ${maxCapturedBytes} bytes`));
  }

  #error(reason: string): MillraceError {
    return new MillraceError('MILLRACE_ERR_FAILED', `guest ${this.#guestName}: ${reason}`);
  }
}

function startMessage(words: readonly string[], { env, cwd, input }: RunOptions, attempt: string): string {
  const given = Object.entries(env ?? {}).filter((entry): entry is [string, string] => entry[1] !== undefined);
  if (words.length === 0 || words[0] === '') throw new UsageError(`${attempt}: no command`);
  if ([...words, ...given.flat(), cwd ?? ''].some((text) => text.includes('\0'))) {
    throw new UsageError(`${attempt}: a zero byte in a word, a variable or the working directory`);
  }
  const cwds = cwd === undefined ? [process.cwd(), '/'] : [cwd];
  const message = JSON.stringify({
    words,
    env: { ...baseEnv, ...Object.fromEntries(given) },
    cwds,
    hasInput: input !== undefined,
  });
  if (Buffer.byteLength(message) <= maxPayloadBytes) return message;
  throw new UsageError(`${attempt}: words and variables of more than ${maxPayloadBytes} bytes`);
}

/** A guest can send anything, so it is checked. */
function parseExit(payload: Buffer): ExitMessage {
  const { code, signal, error } = JSON.parse(payload.toString()) as Partial<Record<keyof ExitMessage, unknown>>;
  const isCode = code === null || (typeof code === 'number' && Number.isInteger(code) && code >= 0 && code <= 255);
  const isSignal = signal === null || (typeof signal === 'string' && signal in constants.signals);
  if (!isCode || !isSignal || (error !== null && typeof error !== 'string'))
    throw new RangeError('an invalid exit message');
  return { code, signal, error };
}

function resultOf({ output }: Running, { code, signal }: ExitMessage): CommandResult {
  return {
    status: code ?? 128 + (signal === null ? 0 : constants.signals[signal as NodeJS.Signals]),
    signal,
    stdout: Buffer.concat(output.stdout).toString(),
    stderr: Buffer.concat(output.stderr).toString(),
  };
}

function timeoutError({ attempt, output }: Running, timeoutMs: number): MillraceError {
  const said = Buffer.concat([...output.stdout, ...output.stderr]).toString();
  return new MillraceError(
    'MILLRACE_ERR_FAILED',
    `${attempt}: it did not end within ${timeoutMs} ms${lastLines(said)}`,
  );
}

/** Indented lines to follow a message. */
export function lastLines(text: string): string {
  const lines = text.trimEnd().split('\n');
  if (lines.length === 1 && lines[0] === '') return '';
  return lines
    .slice(-shownLines)
    .map((line) => `\n  ${line}`)
    .join('');
}
