// Two lab hosts with three paths from one to the other, all open at once: plain TCP, a haproxy
// pair, and carried by daemons.

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { MillraceError } from '../../src/errors.ts';
import { type Host, Lab } from '../../src/lab/index.ts';
import type { DaemonStatus } from '../../src/status/index.ts';
import { removeInstance } from '../../src/steering/index.ts';
import { DaemonProcess, daemonSettings } from '../worlds/index.ts';
import { HaproxyPair } from './proxy-haproxy.ts';
import type { PeerHosts, ServerAddress } from './steer-peers.ts';

export const wires = ['shm', 'roce', 'tcp'] as const;
export type Wire = (typeof wires)[number];
export type ProxyPath = 'carried' | 'plain' | 'haproxy';

/** Where servers listen, by the path that leads there. A rule is about the first. */
export const serverPorts = { carried: 7102, plain: 7101, haproxy: 7103 } as const satisfies Record<ProxyPath, number>;
/** Of the haproxy in the client's host, and of the one in the server's. */
const haproxyPorts = { near: 7104, far: 7105 } as const;

/** What the hook counts when a connection that a rule wants carried is not. */
const fallbacks = ['daemonDown', 'notAnnounced', 'noMemory'] as const;
const PATIENCE_MS = 20_000;

interface ProxyWorldOptions {
  readonly wire: Wire;
  readonly signal: AbortSignal;
}

export class ProxyWorld implements PeerHosts, AsyncDisposable {
  readonly wire: Wire;
  readonly client: Host;
  readonly server: Host;
  /** Who carries, by path, one process a host. */
  readonly pids: Readonly<Record<ProxyPath, readonly number[]>>;
  readonly #daemon: DaemonProcess;
  readonly #undo: AsyncDisposableStack;

  static async create({ wire, signal }: ProxyWorldOptions): Promise<ProxyWorld> {
    await using undo = new AsyncDisposableStack();
    const folder = await mkdtemp(join(tmpdir(), 'millrace-bench-'));
    undo.defer(() => rm(folder, { recursive: true, force: true }));
    const lab = undo.use(await Lab.create({ hosts: ['client', 'server'], signal }));
    const [client, server] = [lab.host('client'), lab.host('server')];
    const start = async (host: Host, peer: Host): Promise<DaemonProcess> => {
      const settings = {
        ...daemonSettings({ host, peers: [peer], folder, devices: [`soft-${wire}`] }),
        rules: [`connect to ${server.ipv4}:${serverPorts.carried}`],
        log: { level: 'warn' },
        drainSeconds: 1,
      };
      const daemon = await DaemonProcess.start(host, folder, settings);
      // Should it not live to do it.
      undo.defer(() => void removeInstance(daemon.instance));
      return undo.use(daemon);
    };
    const daemons = await settled([start(client, server), start(server, client)]);
    const hops = [
      { host: client, listen: at(client, haproxyPorts.near), next: at(server, haproxyPorts.far) },
      { host: server, listen: at(server, haproxyPorts.far), next: at(server, serverPorts.haproxy) },
    ];
    const haproxy = undo.use(await HaproxyPair.start(hops, folder, signal));
    const pids = {
      carried: daemons.map(({ pid }) => pid),
      plain: [],
      haproxy: haproxy.pids,
    };
    return new ProxyWorld(wire, { client, server }, daemons[0], pids, undo.move());
  }

  private constructor(
    wire: Wire,
    { client, server }: PeerHosts,
    daemon: DaemonProcess,
    pids: ProxyWorld['pids'],
    undo: AsyncDisposableStack,
  ) {
    this.wire = wire;
    this.client = client;
    this.server = server;
    this.#daemon = daemon;
    this.pids = pids;
    this.#undo = undo;
  }

  /** The address that the client connects to for that path. */
  addressOf(path: ProxyPath): ServerAddress {
    return path === 'haproxy' ? at(this.client, haproxyPorts.near) : at(this.server, serverPorts[path]);
  }

  /** The same as host and port. */
  endpointOf(path: ProxyPath): { readonly host: Host; readonly port: number } {
    return { host: path === 'haproxy' ? this.client : this.server, port: this.addressOf(path).port };
  }

  /** Connects until that is carried: the daemons have to meet, and to hear of the server. */
  async carrying(connect: () => Promise<unknown>, signal: AbortSignal): Promise<void> {
    for (const endMs = performance.now() + PATIENCE_MS; ; ) {
      signal.throwIfAborted();
      const before = await this.status();
      await connect();
      const after = await this.status();
      if (verdict(after, 'carried') > verdict(before, 'carried')) return;
      if (performance.now() < endMs) continue;
      const reasons = after.peers.map(({ name, state, reason }) => `${name} is ${state} ${reason}`.trimEnd());
      throw failed(`nothing is carried after ${PATIENCE_MS / 1000} s (${[...reasons, ...after.notReady].join(', ')})`);
    }
  }

  /** Measures, and proves that it went by that path: a figure of another one is an error. */
  async measured(path: ProxyPath, measure: () => Promise<number>): Promise<number> {
    const before = await this.status();
    const figure = await measure();
    const after = await this.status();
    const carried = verdict(after, 'carried') - verdict(before, 'carried');
    const bytes = bytesOf(after) - bytesOf(before);
    if (path !== 'carried') {
      if (carried === 0 && bytes === 0) return figure;
      throw failed(`${carried} connections and ${bytes} bytes of the ${path} path were carried`);
    }
    const fell = fallbacks.filter((name) => verdict(after, name) > verdict(before, name));
    const used = new Set(after.peers.flatMap(({ links }) => links.flatMap(({ wire }) => wire || [])));
    if (used.size !== 1 || !used.has(this.wire)) throw failed(`the wire is ${[...used].join(', ')}, not ${this.wire}`);
    if (carried > 0 && bytes > 0 && fell.length === 0) return figure;
    throw failed(`${carried} connections and ${bytes} bytes were carried (${fell.join(', ') || 'no rule'})`);
  }

  /** Of the daemon in the client's host. */
  status(): Promise<DaemonStatus> {
    return this.#daemon.api.status();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#undo.disposeAsync();
  }
}

/** All of them, or the first error once none is under way any more. */
async function settled<T>(promises: readonly Promise<T>[]): Promise<readonly T[]> {
  await Promise.allSettled(promises);
  return Promise.all(promises);
}

function at(host: Host, port: number): ServerAddress {
  return { address: host.ipv4, port };
}

function verdict({ verdicts }: DaemonStatus, name: string): number {
  return verdicts[name] ?? 0;
}

function bytesOf({ counters }: DaemonStatus): number {
  return counters.bytesOut + counters.bytesIn;
}

function failed(what: string): MillraceError {
  return new MillraceError('MILLRACE_ERR_FAILED', `measure the proxy: ${what}`);
}
