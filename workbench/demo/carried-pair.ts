// Daemons on two lab hosts that are each other's peer, and hosts whose programs have the library of
// Direct.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { directEnvironment, directLibrary } from '../../src/direct/launch/index.ts';
import { MillraceError } from '../../src/errors.ts';
import { findProgram, type Host } from '../../src/lab/index.ts';
import { directSocketPath } from '../../src/system/index.ts';
import { makeLabCertificates } from '../../src/tls/index.ts';
import { DaemonProcess, daemonSettings } from '../worlds/index.ts';

const POLL_MS = 50;
const CONNECT_MS = 15_000;

interface CarriedPairOptions {
  readonly client: Host;
  readonly server: Host;
  /** Connections to these ports are carried. */
  readonly ports: readonly number[];
  readonly devices: readonly string[];
  readonly signal: AbortSignal;
}

export class CarriedPair implements AsyncDisposable {
  readonly client: DaemonProcess;
  readonly server: DaemonProcess;
  /** The same hosts, where programs have the library. */
  readonly direct: { readonly client: Host; readonly server: Host };
  readonly #undo: AsyncDisposableStack;

  static async start(options: CarriedPairOptions): Promise<CarriedPair> {
    const { client, server, ports, devices, signal } = options;
    const library = directLibrary();
    await using undo = new AsyncDisposableStack();
    const folder = mkdtempSync(join(tmpdir(), 'millrace-demo-'));
    undo.defer(() => rmSync(folder, { recursive: true, force: true }));
    const openssl = findProgram('openssl', process.env.PATH);
    if (openssl === null) throw new MillraceError('MILLRACE_ERR_UNSUPPORTED', 'make certificates: install openssl');
    const names = [client.name, server.name];
    const { ca, nodes } = await makeLabCertificates({
      openssl,
      folder: join(folder, 'tls'),
      names,
      days: 1,
      caDays: 2,
      signal,
    });
    const start = async (host: Host, peer: Host): Promise<DaemonProcess> => {
      const own = nodes.find(({ name }) => name === host.name);
      const certificates = own === undefined ? {} : { certificates: { ca, cert: own.cert, key: own.key } };
      const settings = daemonSettings({ host, peers: [peer], folder, devices, ...certificates });
      const rules = [peer.ipv4, peer.ipv6].map(
        (to) => `connect to ${to.includes(':') ? `[${to}]` : to}:${ports.join(',')}`,
      );
      return undo.use(await DaemonProcess.start(host, folder, { ...settings, rules, drainSeconds: 1 }));
    };
    // What `millrace run` sets.
    const withLibrary = (host: Host, daemon: DaemonProcess): Host =>
      host.withEnv(directEnvironment(process.env, library, directSocketPath(daemon.instance, folder)));
    const [one, other] = await Promise.allSettled([start(client, server), start(server, client)]);
    if (one.status === 'rejected') throw one.reason;
    if (other.status === 'rejected') throw other.reason;
    const direct = { client: withLibrary(client, one.value), server: withLibrary(server, other.value) };
    return new CarriedPair(one.value, other.value, direct, undo.move());
  }

  private constructor(
    client: DaemonProcess,
    server: DaemonProcess,
    direct: CarriedPair['direct'],
    undo: AsyncDisposableStack,
  ) {
    this.client = client;
    this.server = server;
    this.direct = direct;
    this.#undo = undo;
  }

  /**
   * Waits until connections of the client's programs to `listeners` listeners of the server are
   * carried.
   */
  async carrying(listeners: number, signal: AbortSignal): Promise<void> {
    const endMs = performance.now() + CONNECT_MS;
    for (;;) {
      signal.throwIfAborted();
      const { peers } = await this.client.api.status();
      const [peer] = peers;
      if (peer?.state === 'up' && peer.listeners >= listeners) return;
      if (performance.now() > endMs) {
        const what = `${peer?.state ?? 'unknown'} ${peer?.reason ?? ''}, ${peer?.listeners ?? 0} listeners`;
        throw new MillraceError('MILLRACE_ERR_FAILED', `wait until the daemons have connected: the peer is ${what}`);
      }
      await sleep(POLL_MS, undefined, { signal });
    }
  }

  async close(): Promise<void> {
    await this.#undo.disposeAsync();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
