// `millrace relay` as a process in a host of a lab: started as people start it, and looked at through what it pins.

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Host } from '../../../src/lab/index.ts';
import { BpfMap } from '../../../src/native/index.ts';
import { endpointBytes } from '../../../src/steering/endpoint.ts';
import { parseEndpoint, verdicts } from '../../../src/steering/index.ts';
import { RunningProgram } from './running-program.ts';

const command = join(import.meta.dirname, '../../../millrace');
const pins = '/sys/fs/bpf/millrace';
const controlPort = 4790;
/** SHORTCUT_REDIRECTED in bpf/shortcut.bpf.c. */
const redirectedIndex = 0;

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

/** Its name in the BPF file system. */
export function instanceOf(host: Host): string {
  return `test-${host.labId}-${host.name}`;
}

export class RelayProcess implements AsyncDisposable {
  readonly instance: string;
  readonly #program: RunningProgram;
  #totals: RelayTotals | null = null;

  static async start(host: Host, options: RelayOptions): Promise<RelayProcess> {
    const relay = new RelayProcess(host, options);
    await relay.#program.line(/"event":"ready"/);
    return relay;
  }

  private constructor(host: Host, { peer, rules }: RelayOptions) {
    this.instance = instanceOf(host);
    const names = ['--name', host.name, '--instance', this.instance, '--cgroup', host.cgroup, '--json'];
    const peers = ['--peer', `${peer.name}=${peer.ipv4}:${controlPort}`];
    const words = ['relay', ...names, ...peers, ...rules.flatMap((rule) => ['--rule', rule])];
    this.#program = RunningProgram.start(host, command, words);
  }

  get pid(): number {
    return this.#program.pid;
  }

  /** Of the programs in the kernel and their maps. */
  get pinFolder(): string {
    return join(pins, this.instance);
  }

  get isPinned(): boolean {
    return existsSync(this.pinFolder);
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

  /** How often the hooks gave that verdict. */
  verdict(name: keyof typeof verdicts): number {
    return this.#count('verdicts', verdicts[name]);
  }

  /** Messages that went past TCP. */
  redirected(): number {
    return this.#count('shortcut_counts', redirectedIndex);
  }

  #count(name: string, index: number): number {
    using map = BpfMap.openPinned(join(this.pinFolder, name));
    const value = new Uint8Array(8);
    map.lookup(new Uint8Array(new Uint32Array([index]).buffer), value);
    return Number(new DataView(value.buffer).getBigUint64(0, true));
  }

  /** As `10.0.0.1:80` or `[fd00::1]:80`. */
  isAnnounced(endpoint: string): boolean {
    using map = BpfMap.openPinned(join(this.pinFolder, 'announced'));
    return map.lookup(endpointBytes(parseEndpoint(endpoint)), new Uint8Array(map.valueBytes));
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
