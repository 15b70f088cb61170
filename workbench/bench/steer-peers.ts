// The two programs of steer.*, proxy.* and direct.* (workbench/bench/c/steer-*.c) in lab hosts:
// event loops in C, so that what is seen is the path.

import { MillraceError } from '../../src/errors.ts';
import type { Host } from '../../src/lab/index.ts';
import { threadAffinity } from '../../src/native/index.ts';
import { compiled } from './compiled.ts';
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

export class SteerPeers implements AsyncDisposable {
  readonly #client: LineProgram;
  readonly #address: string;
  readonly #undo: AsyncDisposableStack;

  /** The server listens on all of the ports, at its host's own address. */
  static async start(
    { client: clientHost, server: serverHost }: PeerHosts,
    ports: readonly number[],
    signal: AbortSignal,
    placement: Placement = 'anywhere',
  ): Promise<SteerPeers> {
    const cpus = threadAffinity();
    const start = (host: Host, cpu: number | undefined, words: readonly string[]): LineProgram => {
      const placed = placement === 'anywhere' ? [] : ['taskset', '-c', String(cpu)];
      const [command = '', ...args] = [...placed, ...words];
      return new LineProgram(host, command, args);
    };
    const [serverFile, clientFile] = [await compiled('steer-server', signal), await compiled('steer-client', signal)];
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
