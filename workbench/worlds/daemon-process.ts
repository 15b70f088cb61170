// `millrace up` as a process in a host of a lab: started as people start it, asked over its socket,
// and looked at through what it pins.

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { MillraceError } from '../../src/errors.ts';
import type { Host } from '../../src/lab/index.ts';
import { ApiClient } from '../../src/server/index.ts';
import type { ConnectionStatus, DaemonStatus, PeerStatus } from '../../src/status/index.ts';
import { eventually, TIMEOUT_MS } from './eventually.ts';
import { instanceOf, PinnedInstance } from './pinned-instance.ts';
import { RunningProgram } from './running-program.ts';

export const command = join(import.meta.dirname, '../../millrace');
/** It drains first. */
const STOP_MS = 15_000;

/** Keys of the config file. */
export type Settings = Readonly<Record<string, unknown>>;

export interface DaemonOptions {
  readonly host: Host;
  readonly peers: readonly Host[];
  /**
   * Where the config, the sockets and the shared memory's meeting place are. All daemons that are
   * to meet need the same.
   */
  readonly folder: string;
  readonly devices: readonly string[];
  /** Files as `millrace peer cert` makes them; without them the daemons trust the lab's network. */
  readonly certificates?: { readonly ca: string; readonly cert: string; readonly key: string };
}

/** What stands in the config of a daemon that carries all connections to its peers. */
export function daemonSettings({ host, peers, folder, devices, certificates }: DaemonOptions): Settings {
  return {
    node: host.name,
    instance: instanceOf(host),
    cgroup: host.cgroup,
    listen: { addresses: [host.ipv4, host.ipv6] },
    rules: peers.flatMap(carryEverything),
    peers: peers.map(({ name, ipv4 }) => ({ name, address: ipv4 })),
    ...(certificates === undefined ? { insecure: true } : { tls: certificates }),
    devices,
    device: { address: host.ipv4, runtimeDir: join(folder, 'soft') },
    api: { socket: socketOf(host, folder), http: false },
    log: { format: 'json' },
  };
}

/** Rules by which all connections to a host are carried. */
export function carryEverything(to: Host): readonly string[] {
  return [`connect to ${to.ipv4}`, `connect to ${to.ipv6}`];
}

/** The same, past the kernel's TCP between a program and its daemon. */
export function redirectEverything(to: Host): readonly string[] {
  return carryEverything(to).map((rule) => `${rule} redirect`);
}

export class DaemonProcess extends PinnedInstance implements AsyncDisposable {
  readonly host: Host;
  readonly configFile: string;
  readonly socketPath: string;
  readonly api: ApiClient;
  readonly program: RunningProgram;

  /**
   * Resolves when it is ready; its peers may not be. `as`: a command that runs it, as `setpriv`.
   * `readyMs`: how long that may take.
   */
  static async start(
    host: Host,
    folder: string,
    settings: Settings,
    env: NodeJS.ProcessEnv = process.env,
    as: readonly string[] = [],
    readyMs: number = TIMEOUT_MS,
  ): Promise<DaemonProcess> {
    const daemon = new DaemonProcess(host, folder, settings, env, as);
    try {
      await daemon.program.line(/"event":"ready"/, readyMs);
      return daemon;
    } catch (error) {
      await daemon.program.close();
      throw error;
    }
  }

  private constructor(host: Host, folder: string, settings: Settings, env: NodeJS.ProcessEnv, as: readonly string[]) {
    super(instanceOf(host));
    this.host = host;
    this.configFile = join(folder, `${host.name}.yaml`);
    this.socketPath = socketOf(host, folder);
    this.api = new ApiClient({ socketPath: this.socketPath });
    this.configure(settings);
    const [program, ...words] = [...as, command, 'up', '--config', this.configFile, '--json'];
    this.program = RunningProgram.start(host, program, words, { env });
  }

  /** Writes its file; JSON is YAML, too. It reads the file again when it is told to. */
  configure(settings: Settings): void {
    writeFileSync(this.configFile, JSON.stringify(settings, null, 2));
  }

  get pid(): number {
    return this.program.pid;
  }

  get hasExited(): boolean {
    return this.program.hasExited;
  }

  get exitCode(): number | null {
    return this.program.exitCode;
  }

  /** Its log, a document a line. */
  get log(): readonly { readonly level: string; readonly msg: string }[] {
    const lines = this.program.stderr.split('\n').filter((line) => line !== '');
    return lines.map((line) => JSON.parse(line) as { readonly level: string; readonly msg: string });
  }

  /** Waits until it has logged a line like that, `count` times in all. */
  async logged(pattern: RegExp, count = 1): Promise<void> {
    const matching = (): number => this.log.filter(({ msg }) => pattern.test(msg)).length;
    await eventually(`${pattern} in the log of ${this.instance}`, () => matching() >= count);
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
    const [peer, ...others] = peers;
    if (peer !== undefined && others.length === 0) return peer;
    throw new MillraceError(
      'MILLRACE_ERR_FAILED',
      `the daemon of ${this.host.name} has ${peers.length} peers, not one`,
    );
  }

  /** It can carry to its peers. */
  async peerUp(): Promise<void> {
    await eventually(`${this.instance} can carry`, async () => {
      const { peers } = await this.status();
      return peers.length > 0 && peers.every(({ state }) => state === 'up');
    });
  }

  signal(name: NodeJS.Signals): void {
    this.program.signal(name);
  }

  async exit(): Promise<void> {
    await this.program.exit();
  }

  /** As if the machine had killed it. */
  async kill(): Promise<void> {
    this.program.signal('SIGKILL');
    await this.program.exit();
  }

  /** Waits until it drains and ends; a daemon that does not is killed. */
  async stop(): Promise<void> {
    await this.program.close(STOP_MS);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }
}

export function socketOf(host: Host, folder: string): string {
  return join(folder, `${host.name}.sock`);
}
