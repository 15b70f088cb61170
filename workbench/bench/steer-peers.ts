// The two programs of steer.*, proxy.* and direct.* (workbench/bench/c/steer-*.c) in lab hosts:
// event loops in C, so that what is seen is the path.

import { execFile } from 'node:child_process';
import { mkdir, rename, stat } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { MillraceError, UnsupportedError } from '../../src/errors.ts';
import type { Host } from '../../src/lab/index.ts';
import { threadAffinity } from '../../src/native/index.ts';
import { LineProgram } from './steer-program.ts';

/** In the words of workbench/bench/c/steer-client.c. */
export interface PeerJob {
  readonly kind: 'rtt' | 'bulk' | 'volume' | 'connects' | 'stall' | 'idle' | 'drop' | 'slow';
  /**
   * Bytes (rtt), streams (bulk, volume), connections (idle; at a time: connects), MiB (stall),
   * MiB/s (slow).
   */
  readonly amount: number;
  readonly ms: number;
}

/**
 * On which processors the two run. Where that is left to the kernel, other load decides whether a
 * message wakes an idle one.
 */
export type Placement = 'anywhere' | 'together' | 'apart';

/** Where the two run. */
export interface PeerHosts {
  readonly client: Host;
  readonly server: Host;
}

/** Where the client connects. */
export interface ServerAddress {
  readonly address: string;
  readonly port: number;
}

const flags = ['-O2', '-Wall', '-Wextra', '-Werror', '-D_GNU_SOURCE'];
const buildDir = fileURLToPath(new URL('../../build/bench', import.meta.url));

/** Compiled again only when the source is newer. */
async function build(name: string, signal: AbortSignal): Promise<string> {
  const source = fileURLToPath(new URL(`./c/${name}.c`, import.meta.url));
  const binary = `${buildDir}/${name}`;
  const [from, to] = await Promise.all([stat(source), stat(binary).catch(() => undefined)]);
  if (to !== undefined && to.mtimeMs > from.mtimeMs) return binary;
  const aside = `${binary}.${process.pid}`;
  await mkdir(buildDir, { recursive: true });
  try {
    await promisify(execFile)('cc', [...flags, source, '-o', aside], { signal });
  } catch (error) {
    signal.throwIfAborted();
    throw new UnsupportedError(
      `build the programs of the bench: ${name}.c did not compile; install the Debian package gcc`,
      {
        cause: error,
      },
    );
  }
  await rename(aside, binary);
  return binary;
}

export class SteerPeers implements AsyncDisposable {
  readonly #client: LineProgram;
  readonly #address: string;
  readonly #undo: AsyncDisposableStack;

  /**
   * The server listens on all of the ports, at its host's own address. `as`: a command that runs
   * both, as `env`.
   */
  static async start(
    { client: clientHost, server: serverHost }: PeerHosts,
    ports: readonly number[],
    signal: AbortSignal,
    placement: Placement = 'anywhere',
    as: readonly string[] = [],
  ): Promise<SteerPeers> {
    const cpus = threadAffinity();
    const start = (host: Host, cpu: number | undefined, words: readonly string[]): LineProgram => {
      const placed = placement === 'anywhere' ? [] : ['taskset', '-c', String(cpu)];
      const [command = '', ...args] = [...placed, ...as, ...words];
      return new LineProgram(host, command, args);
    };
    const [serverFile, clientFile] = [await build('steer-server', signal), await build('steer-client', signal)];
    await using undo = new AsyncDisposableStack();
    const server = undo.use(start(serverHost, cpus.at(-1), [serverFile, serverHost.ipv4, ...ports.map(String)]));
    await server.line(signal);
    const client = undo.use(start(clientHost, cpus.at(placement === 'apart' ? 0 : -1), [clientFile]));
    return new SteerPeers(client, serverHost.ipv4, undo.move());
  }

  private constructor(client: LineProgram, address: string, undo: AsyncDisposableStack) {
    this.#client = client;
    this.#address = address;
    this.#undo = undo;
  }

  /**
   * The figure that the client gives. `at`: a port of the server, or where else the client is to
   * connect.
   */
  async run({ kind, amount, ms }: PeerJob, at: number | ServerAddress, signal: AbortSignal): Promise<number> {
    const { address, port } = typeof at === 'number' ? { address: this.#address, port: at } : at;
    this.#client.write(`${kind} ${address} ${port} ${amount} ${Math.ceil(ms)}`);
    const figure = Number(await this.#client.line(signal));
    if (figure > 0) return figure;
    throw new MillraceError('MILLRACE_ERR_FAILED', `the client of the bench gave no figure for '${kind} ${amount}'`);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#undo.disposeAsync();
  }
}
