// A daemon in a lab's host, as a process of its own: `millrace up` with a config made for it.

import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { stringify } from 'yaml';
import { MillraceError } from '../../src/errors.ts';
import type { Host } from '../../src/lab/index.ts';
import { ApiClient } from '../../src/server/index.ts';
import { findCgroup2Mount } from '../../src/system/index.ts';

const program = new URL('../../src/cli/bin.ts', import.meta.url).pathname;
const STOP_MS = 15_000;

export interface LabDaemonOptions {
  readonly host: Host;
  readonly peers: readonly Host[];
  /** Where the config, the sockets and the shared memory's meeting place are. All daemons that are to meet need the same. */
  readonly folder: string;
  readonly devices: readonly string[];
  /** Files as `millrace peer cert` makes them; without them the daemons trust the lab's network. */
  readonly certificates?: { readonly ca: string; readonly cert: string; readonly key: string };
  /** Further keys of the config, over what is made here. */
  readonly config?: Readonly<Record<string, unknown>>;
  readonly env?: NodeJS.ProcessEnv;
}

export class LabDaemon implements AsyncDisposable {
  readonly host: Host;
  readonly instance: string;
  readonly socketPath: string;
  readonly configPath: string;
  readonly api: ApiClient;
  readonly child: ChildProcess;
  readonly #exited: Promise<unknown>;
  readonly #said: string[] = [];

  /** Resolves when it is ready; its peers may not be. */
  static async start(options: LabDaemonOptions): Promise<LabDaemon> {
    const daemon = new LabDaemon(options);
    await daemon.#ready();
    return daemon;
  }

  private constructor(options: LabDaemonOptions) {
    const { host, folder, env = process.env } = options;
    this.host = host;
    this.instance = `${host.labId}-${host.name}`;
    this.socketPath = join(folder, `${host.name}.sock`);
    this.configPath = join(folder, `${host.name}.yaml`);
    writeFileSync(this.configPath, stringify(configOf(options, this.instance, this.socketPath)));
    this.child = host.spawn(process.execPath, [program, 'up', '--config', this.configPath, '--json'], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env,
    });
    this.#exited = once(this.child, 'exit');
    this.api = new ApiClient({ socketPath: this.socketPath });
    const { stderr } = this.child;
    if (stderr !== null) createInterface(stderr).on('line', (line) => this.#note(line));
  }

  /** The last lines of its log. */
  get log(): readonly string[] {
    return this.#said;
  }

  /** Waits until it drains and ends; a daemon that does not is killed. */
  async stop(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    this.child.kill('SIGTERM');
    const timer = setTimeout(() => this.child.kill('SIGKILL'), STOP_MS);
    await this.#exited;
    clearTimeout(timer);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  #note(line: string): void {
    this.#said.push(line);
    if (this.#said.length > 200) this.#said.shift();
  }

  async #ready(): Promise<void> {
    const { stdout } = this.child;
    if (stdout === null) throw new MillraceError('MILLRACE_ERR_FAILED', 'start a daemon: no standard output');
    for await (const line of createInterface(stdout)) {
      if (!line.includes('"ready"')) continue;
      stdout.resume();
      return;
    }
    const reason = this.#said.slice(-3).join(' ');
    throw new MillraceError('MILLRACE_ERR_FAILED', `start a daemon in host ${this.host.name}: it ended. ${reason}`);
  }
}

function configOf(options: LabDaemonOptions, instance: string, socket: string): object {
  const { host, peers, folder, devices, certificates, config = {} } = options;
  return {
    node: host.name,
    instance,
    cgroup: host.cgroup.slice((findCgroup2Mount() ?? '').length),
    listen: { addresses: [host.ipv4, host.ipv6] },
    rules: peers.flatMap(({ ipv4, ipv6 }) => [`connect to ${ipv4}`, `connect to ${ipv6}`]),
    peers: peers.map(({ name, ipv4 }) => ({ name, address: ipv4 })),
    ...(certificates === undefined ? { insecure: true } : { tls: certificates }),
    devices,
    device: { address: host.ipv4, runtimeDir: join(folder, 'soft') },
    api: { socket, http: false },
    log: { level: 'info', format: 'json' },
    drainSeconds: 1,
    ...config,
  };
}
