// `millrace relay` as a process in a host of a lab: started as people start it, and looked at through what it pins.

import { join } from 'node:path';
import type { Host } from '../../../src/lab/index.ts';
import { instanceOf, PinnedInstance } from './pinned-instance.ts';
import { RunningProgram } from './running-program.ts';

const command = join(import.meta.dirname, '../../../millrace');
const controlPort = 4790;

export interface RelayOptions {
  readonly peer: Host;
  readonly rules: readonly string[];
}

/** What its last line says. */
export interface RelayTotals {
  readonly accepted: number;
  readonly strangers: number;
  readonly unreachable: number;
  readonly open: number;
  readonly bytesToServer: number;
  readonly bytesToClient: number;
}

export class RelayProcess extends PinnedInstance implements AsyncDisposable {
  readonly #program: RunningProgram;
  #totals: RelayTotals | null = null;

  static async start(host: Host, options: RelayOptions): Promise<RelayProcess> {
    const relay = new RelayProcess(host, options);
    await relay.#program.line(/"event":"ready"/);
    return relay;
  }

  private constructor(host: Host, { peer, rules }: RelayOptions) {
    super(instanceOf(host));
    const names = ['--name', host.name, '--instance', this.instance, '--cgroup', host.cgroup, '--json'];
    const peers = ['--peer', `${peer.name}=${peer.ipv4}:${controlPort}`];
    const words = ['relay', ...names, ...peers, ...rules.flatMap((rule) => ['--rule', rule])];
    this.#program = RunningProgram.start(host, command, words);
  }

  get pid(): number {
    return this.#program.pid;
  }

  get hasExited(): boolean {
    return this.#program.hasExited;
  }

  get stderr(): string {
    return this.#program.stderr;
  }

  /** Both relays have found each other. */
  async peerUp(): Promise<void> {
    await this.#program.line(/"event":"peer-up"/);
  }

  /** As if the machine had killed it. */
  async kill(): Promise<void> {
    this.#program.signal('SIGKILL');
    await this.#program.exit();
  }

  /** Asks it to end, and returns what it says that it did. */
  async stop(): Promise<RelayTotals> {
    if (this.#totals !== null) return this.#totals;
    this.#program.signal('SIGTERM');
    const line = await this.#program.line(/"event":"stopped"/);
    await this.#program.exit();
    this.#totals = JSON.parse(line) as RelayTotals;
    return this.#totals;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#program.close();
  }
}
