// `millrace up` as a process in a host of a lab: started as people start it, asked over its socket, and looked at through what it pins.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Host } from '../../../src/lab/index.ts';
import { ApiClient } from '../../../src/server/index.ts';
import type { ConnectionStatus, DaemonStatus, PeerStatus } from '../../../src/status/daemon-status.ts';
import { instanceOf, PinnedInstance } from '../steering/pinned-instance.ts';
import { RunningProgram } from '../steering/running-program.ts';
import { until } from '../steering/world.ts';

export const command = join(import.meta.dirname, '../../../millrace');

/** Keys of the config file. */
export type Settings = Readonly<Record<string, unknown>>;

export class DaemonProcess extends PinnedInstance implements AsyncDisposable {
  readonly configFile: string;
  readonly api: ApiClient;
  readonly #program: RunningProgram;

  static async start(host: Host, folder: string, settings: Settings): Promise<DaemonProcess> {
    const daemon = new DaemonProcess(host, folder, settings);
    try {
      await daemon.#program.line(/"event":"ready"/);
      return daemon;
    } catch (error) {
      await daemon.#program.close();
      throw error;
    }
  }

  private constructor(host: Host, folder: string, settings: Settings) {
    super(instanceOf(host));
    this.configFile = join(folder, `${host.name}.yaml`);
    this.api = new ApiClient({ socketPath: socketOf(host, folder) });
    this.configure(settings);
    this.#program = RunningProgram.start(host, command, ['up', '--config', this.configFile, '--json']);
  }

  /** Writes its file; JSON is YAML, too. It reads the file again when it is told to. */
  configure(settings: Settings): void {
    writeFileSync(this.configFile, JSON.stringify(settings, null, 2));
  }

  get pid(): number {
    return this.#program.pid;
  }

  get hasExited(): boolean {
    return this.#program.hasExited;
  }

  get exitCode(): number | null {
    return this.#program.exitCode;
  }

  /** Its log, a document a line. */
  get log(): readonly { readonly level: string; readonly msg: string }[] {
    const lines = this.#program.stderr.split('\n').filter((line) => line !== '');
    return lines.map((line) => JSON.parse(line) as { readonly level: string; readonly msg: string });
  }

  /** Waits until it has logged a line like that, `count` times in all. */
  async logged(pattern: RegExp, count = 1): Promise<void> {
    const matching = (): number => this.log.filter(({ msg }) => pattern.test(msg)).length;
    await until(`${pattern} in the log of ${this.instance}`, () => matching() >= count);
  }

  status(): Promise<DaemonStatus> {
    return this.api.status();
  }

  connections(): Promise<readonly ConnectionStatus[]> {
    return this.api.connections();
  }

  /** The only one that it has. */
  async peer(): Promise<PeerStatus> {
    const { peers } = await this.status();
    assert.equal(peers.length, 1);
    return peers[0] as PeerStatus;
  }

  /** It can carry to its peer. */
  async peerUp(): Promise<void> {
    await until(`${this.instance} can carry`, async () => {
      const { peers } = await this.status();
      return peers.length > 0 && peers.every(({ state }) => state === 'up');
    });
  }

  signal(name: NodeJS.Signals): void {
    this.#program.signal(name);
  }

  async exit(): Promise<void> {
    await this.#program.exit();
  }

  /** As if the machine had killed it. */
  async kill(): Promise<void> {
    this.#program.signal('SIGKILL');
    await this.#program.exit();
  }

  /** Asks it to end, and waits for it. */
  async stop(): Promise<void> {
    this.#program.signal('SIGTERM');
    await this.#program.exit();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#program.close();
  }
}

export function socketOf(host: Host, folder: string): string {
  return join(folder, `${host.name}.sock`);
}
