// Daemons on two lab hosts that are each other's peer.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { MillraceError } from '../../src/errors.ts';
import { findProgram, type Host } from '../../src/lab/index.ts';
import { makeLabCertificates } from '../../src/tls/index.ts';
import { DaemonProcess, daemonSettings } from '../worlds/index.ts';

const POLL_MS = 50;
const CONNECT_MS = 15_000;

interface CarriedPairOptions {
  readonly client: Host;
  readonly server: Host;
  readonly devices: readonly string[];
  readonly signal: AbortSignal;
}

export class CarriedPair implements AsyncDisposable {
  readonly client: DaemonProcess;
  readonly server: DaemonProcess;
  readonly #undo: AsyncDisposableStack;

  static async start(options: CarriedPairOptions): Promise<CarriedPair> {
    const { client, server, devices, signal } = options;
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
      return undo.use(await DaemonProcess.start(host, folder, { ...settings, drainSeconds: 1 }));
    };
    const [one, other] = await Promise.allSettled([start(client, server), start(server, client)]);
    if (one.status === 'rejected') throw one.reason;
    if (other.status === 'rejected') throw other.reason;
    return new CarriedPair(one.value, other.value, undo.move());
  }

  private constructor(client: DaemonProcess, server: DaemonProcess, undo: AsyncDisposableStack) {
    this.client = client;
    this.server = server;
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
