// A real etcd, on the loopback or in a host of a lab: can be killed, started again, and started
// again without its data.

import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { MillraceError } from '../../src/errors.ts';
import { type Host, requireTool } from '../../src/lab/index.ts';
import { eventually } from './eventually.ts';
import { freePort } from './free-port.ts';

/** What it logs when it serves. */
const READY = 'ready to serve client requests';

interface EtcdPlace {
  /** Without one, it is on the loopback of this process, at ports that are free. */
  readonly host?: Host;
  /** In that host, for clients; the next one is for other etcds. */
  readonly port?: number;
}

export class Etcd implements AsyncDisposable {
  readonly endpoint: string;
  readonly #peerEndpoint: string;
  readonly #host: Host | undefined;
  readonly #folder = mkdtempSync(join(tmpdir(), 'millrace-etcd-'));
  #child: ChildProcess | undefined;

  static async start(place: EtcdPlace = {}): Promise<Etcd> {
    const etcd = await Etcd.#at(place);
    try {
      await etcd.resume();
      return etcd;
    } catch (error) {
      await etcd[Symbol.asyncDispose]();
      throw error;
    }
  }

  static async #at({ host, port = 2379 }: EtcdPlace): Promise<Etcd> {
    const [first, second] = host === undefined ? [await freePort(), await freePort()] : [port, port + 1];
    return new Etcd(host, first, second);
  }

  private constructor(host: Host | undefined, port: number, peerPort: number) {
    const address = host?.ipv4 ?? '127.0.0.1';
    this.#host = host;
    this.endpoint = `http://${address}:${port}`;
    this.#peerEndpoint = `http://${address}:${peerPort}`;
  }

  /** Starts it again after stop(). */
  async resume(): Promise<void> {
    const peer = this.#peerEndpoint;
    const settings = {
      'data-dir': join(this.#folder, 'data'),
      'log-level': 'info',
      'listen-client-urls': this.endpoint,
      'advertise-client-urls': this.endpoint,
      'listen-peer-urls': peer,
      'initial-advertise-peer-urls': peer,
      'initial-cluster': `default=${peer}`,
    };
    const args = Object.entries(settings).map(([name, value]) => `--${name}=${value}`);
    // Settings could come by the environment, too.
    const options: SpawnOptions = { stdio: ['ignore', 'ignore', 'pipe'], env: { PATH: process.env.PATH } };
    const program = requireTool('etcd', 'etcd-server');
    const child = this.#host === undefined ? spawn(program, args, options) : this.#host.spawn(program, args, options);
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
    throw new MillraceError('MILLRACE_ERR_FAILED', `start etcd at ${this.endpoint}: it ended. ${last}`);
  }

  /** At once, as a crash would. */
  async stop(): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGKILL');
    await once(child, 'exit');
  }

  loseData(): void {
    rmSync(join(this.#folder, 'data'), { recursive: true, force: true });
  }

  async call(path: string, body: object): Promise<Record<string, unknown>> {
    const response = await fetch(`${this.endpoint}/v3/${path}`, { method: 'POST', body: JSON.stringify(body) });
    const answer = (await response.json()) as Record<string, unknown>;
    if (!response.ok) throw new Error(`${path}: ${JSON.stringify(answer)}`);
    return answer;
  }

  async put(key: string, value: string | Uint8Array): Promise<void> {
    await this.call('kv/put', { key: base64(key), value: base64(value) });
  }

  async delete(key: string): Promise<void> {
    await this.call('kv/deleterange', { key: base64(key) });
  }

  async has(key: string): Promise<boolean> {
    return (await this.call('kv/range', { key: base64(key) })).count === '1';
  }

  async untilThere(key: string): Promise<void> {
    await eventually(`etcd has ${key}`, () => this.has(key));
  }

  /** All revisions before now. */
  async compact(): Promise<void> {
    const { header } = await this.call('kv/range', { key: base64('x') });
    await this.call('kv/compaction', { revision: (header as { readonly revision: string }).revision });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

function base64(value: string | Uint8Array): string {
  return Buffer.from(value).toString('base64');
}
