// A guest: a virtual machine with Debian's kernel over the host's own root, and the commands that
// run in it.

import { dirname } from 'node:path';
import { MillraceError, UsageError } from '../../errors.ts';
import { makeFolder } from '../../system/index.ts';
import { type CommandResult, lastLines, type RunOptions } from './agent-client.ts';
import { Capture } from './capture.ts';
import { prepareImage } from './image.ts';
import { type Link, makeLink } from './link.ts';
import { Machine } from './machine.ts';
import { addRxe, type RxeDevice, type RxeOptions } from './rxe.ts';
import { withSecondTry } from './second-try.ts';
import { checkMemory, type GuestOptions, type GuestSpec, guestSpec } from './spec.ts';

/** The time limit of `sync`, which writes memory-mapped files of the shared folder. */
const syncTimeoutMs = 5000;

/**
 * A guest boots once and runs many commands, also at once. QEMU ends with this object, and whenever
 * this process ends.
 */
export class Guest implements AsyncDisposable {
  readonly name: string;
  /** The kernel's release, as of `uname -r`. */
  readonly kernel: string;
  /** From the start of QEMU until commands could be run. */
  readonly bootMs: number;
  readonly #machine: Machine;
  readonly #spec: GuestSpec;
  readonly #capture: Capture | null;
  readonly #resources: AsyncDisposableStack;
  #closing: Promise<void> | null = null;

  private constructor(
    machine: Machine,
    spec: GuestSpec,
    capture: Capture | null,
    resources: AsyncDisposableStack,
    boot: { readonly kernel: string; readonly bootMs: number },
  ) {
    this.#machine = machine;
    this.#spec = spec;
    this.#capture = capture;
    this.#resources = resources;
    this.name = spec.name;
    this.kernel = boot.kernel;
    this.bootMs = boot.bootMs;
  }

  static async boot(options: GuestOptions = {}): Promise<Guest> {
    const spec = guestSpec(options);
    options.signal?.throwIfAborted();
    checkMemory(spec);
    return withSecondTry(options.signal, () => Guest.#boot(options, spec));
  }

  static async #boot(options: GuestOptions, spec: GuestSpec): Promise<Guest> {
    await using stack = new AsyncDisposableStack();
    const { signal, network, cacheDir, onProgress } = options;
    const link = network === undefined ? null : stack.use(await makeLink(network));
    const image = await prepareImage({ cacheDir, signal, onProgress });
    const capture = link === null || network?.isCaptured === false ? null : stack.use(new Capture());
    const startMs = performance.now();
    const machine = stack.use(new Machine(spec, image, link, capture));
    const onAbort = (): void => machine.end(signal?.reason as Error);
    signal?.addEventListener('abort', onAbort, { once: true });
    stack.defer(() => signal?.removeEventListener('abort', onAbort));
    if (signal?.aborted === true) onAbort();
    const { kernel } = await machine.ready();
    if (link !== null) await configure(machine, options, link);
    return new Guest(machine, spec, capture, stack.move(), { kernel, bootMs: performance.now() - startMs });
  }

  /** Runs a command to its end. A status other than 0 is a result, not an error. */
  async run(words: readonly string[], options: RunOptions = {}): Promise<CommandResult> {
    return this.#machine.agent.run(words, options);
  }

  /**
   * Throws when the status is not 0, with the last output of the command, and keeps capture and
   * console.
   */
  async runOk(words: readonly string[], options: RunOptions = {}): Promise<CommandResult> {
    return runOk(this.#machine, words, options);
  }

  /**
   * Creates an RDMA device of the kernel (rxe), on a dummy network device unless another is named.
   */
  async addRxe(options: RxeOptions = {}): Promise<RxeDevice> {
    return addRxe((words, input) => this.runOk(words, { input }), options);
  }

  /** The last output of the serial line. */
  get console(): string {
    return this.#machine.qemu.console.text;
  }

  /** The process id of QEMU. */
  get pid(): number | undefined {
    return this.#machine.qemu.pid;
  }

  /** Writes the packets of eth0 so far to a pcap file. */
  saveCapture(path: string): void {
    if (this.#capture === null)
      throw new UsageError(
        `save the capture of guest ${this.name}: it has no network card, or its packets are not captured`,
      );
    makeFolder(dirname(path));
    this.#capture.save(path);
  }

  /** Saves capture and console in `failureDir` and returns their paths, for tests that failed. */
  keepEvidence(): readonly string[] {
    return this.#machine.keepEvidence();
  }

  /** Ends QEMU. Commands that still run end with an error. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    const { agent } = this.#machine;
    if (this.#spec.share !== undefined) await agent.run(['sync'], { timeoutMs: syncTimeoutMs }).catch(() => {});
    await this.#resources.disposeAsync();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

async function configure(machine: Machine, { network = {} }: GuestOptions, link: Link): Promise<void> {
  const { address, mtu } = network;
  const named = [...(address ?? []).map((each) => `addr add ${each} dev eth0`), 'link set eth0 up'];
  const lines = [
    ...(mtu === undefined ? [] : [`link set eth0 mtu ${mtu}`]),
    ...(address === undefined && link.ipLines.length > 0 ? link.ipLines : named),
  ];
  await runOk(machine, ['ip', '-batch', '-'], { input: `${lines.join('\n')}\n` });
}

async function runOk(machine: Machine, words: readonly string[], options: RunOptions): Promise<CommandResult> {
  try {
    const result = await machine.agent.run(words, options);
    if (result.status === 0) return result;
    const how = result.signal ?? `status ${result.status}`;
    const said = lastLines(`${result.stdout}${result.stderr}`);
    throw new MillraceError('MILLRACE_ERR_FAILED', `run ${words.join(' ')} in guest ${machine.name}: ${how}${said}`);
  } catch (error) {
    if (error instanceof MillraceError && error.code === 'MILLRACE_ERR_FAILED') error.message += machine.evidenceText();
    throw error;
  }
}
