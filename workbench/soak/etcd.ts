// A real etcd in a host of the lab, which can be killed and started again with its data.

import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { MillraceError } from '../../src/errors.ts';
import type { Host } from '../../src/lab/index.ts';
import { requireTool } from '../../src/lab/index.ts';

/** What it logs when it serves. */
const READY = 'ready to serve client requests';

export class LabEtcd implements AsyncDisposable {
  readonly endpoint: string;
  readonly #host: Host;
  readonly #folder: string;
  #child: ChildProcess | undefined;

  static async start(host: Host, folder: string): Promise<LabEtcd> {
    const etcd = new LabEtcd(host, folder);
    await etcd.resume();
    return etcd;
  }

  private constructor(host: Host, folder: string) {
    this.#host = host;
    this.#folder = folder;
    this.endpoint = `http://${host.ipv4}:2379`;
  }

  /** Starts it again after stop(). */
  async resume(): Promise<void> {
    const peer = `http://${this.#host.ipv4}:2380`;
    const settings = {
      'data-dir': join(this.#folder, 'etcd'),
      'log-level': 'info',
      'listen-client-urls': this.endpoint,
      'advertise-client-urls': this.endpoint,
      'listen-peer-urls': peer,
      'initial-advertise-peer-urls': peer,
      'initial-cluster': `default=${peer}`,
    };
    const args = Object.entries(settings).map(([name, value]) => `--${name}=${value}`);
    // Settings could come by the environment, too.
    const child = this.#host.spawn(requireTool('etcd', 'etcd-server'), args, {
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { PATH: process.env.PATH },
    });
    this.#child = child;
    const { stderr } = child;
    if (stderr === null) throw new MillraceError('MILLRACE_ERR_FAILED', 'start etcd: no standard error');
    let last = '';
    for await (const line of createInterface(stderr)) {
      last = line;
      if (!line.includes(READY)) continue;
      stderr.resume();
      return;
    }
    throw new MillraceError('MILLRACE_ERR_FAILED', `start etcd in host ${this.#host.name}: it ended. ${last}`);
  }

  /** At once, as a crash would. */
  async stop(): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGKILL');
    await once(child, 'exit');
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }
}
