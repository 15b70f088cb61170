// Where a soak happens: two hosts with a daemon each, etcd on a third, a switch between them; and
// all that can break there.

import { execFile } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { directEnvironment, directLibrary } from '../../src/direct/launch/index.ts';
import { type Host, hostIndexOf, Lab, requireTool, switchNamespaceOf } from '../../src/lab/index.ts';
import { removeInstance } from '../../src/steering/index.ts';
import { directSocketPath } from '../../src/system/index.ts';
import { makeLabCertificates } from '../../src/tls/index.ts';
import { DaemonProcess, daemonSettings, Etcd } from '../worlds/index.ts';
import { DaemonLog } from './daemon-log.ts';
import type { HostName } from './plan.ts';
import type { Traffic } from './traffic.ts';
import type { Victims } from './victims.ts';

const run = promisify(execFile);

/**
 * Short, so that faults are noticed and over within a soak of seconds, and links are given back
 * after it: then a daemon has no more descriptors than before.
 */
export const channelSettings = { heartbeatMs: 300, deadMs: 2000, recoverySeconds: 10, idleSeconds: 1 } as const;
const hostNames: readonly HostName[] = ['a', 'b'];
/** The daemon's default. */
const CONTROL_PORT = 4790;

interface SoakWorldOptions {
  readonly signal: AbortSignal;
  readonly isDirect: boolean;
}

type Certificates = Awaited<ReturnType<typeof makeLabCertificates>>;

export class SoakWorld implements AsyncDisposable {
  readonly etcd: Etcd;
  readonly log = new DaemonLog();
  readonly #lab: Lab;
  readonly #folder: string;
  readonly #certificates: Certificates;
  readonly #undo: AsyncDisposableStack;
  readonly #daemons = new Map<HostName, DaemonProcess>();
  /** Programs have the library of Direct, and nothing is carried. */
  readonly isDirect: boolean;
  /** Of the daemons that are started from now on. */
  devices: readonly string[] = ['soft-shm'];
  /** A soft device's fault plan. */
  deviceFaults: object | undefined;
  /** The programs that keep the connections which must hold. */
  traffic: readonly Traffic[] = [];
  /** Programs that may be killed. */
  victims: Victims | undefined;

  static async create({ signal, isDirect }: SoakWorldOptions): Promise<SoakWorld> {
    await using undo = new AsyncDisposableStack();
    const folder = mkdtempSync(join(tmpdir(), 'millrace-soak-'));
    undo.defer(() => rmSync(folder, { recursive: true, force: true }));
    const openssl = requireTool('openssl', 'openssl');
    const tls = { openssl, folder: join(folder, 'tls'), names: [...hostNames], days: 1, caDays: 2, signal };
    const certificates = await makeLabCertificates(tls);
    const lab = undo.use(await Lab.create({ hosts: [...hostNames, 'store'], signal }));
    const etcd = undo.use(await Etcd.start({ host: lab.host('store') }));
    return new SoakWorld(isDirect, lab, folder, certificates, etcd, undo.move());
  }

  private constructor(
    isDirect: boolean,
    lab: Lab,
    folder: string,
    certificates: Certificates,
    etcd: Etcd,
    undo: AsyncDisposableStack,
  ) {
    this.isDirect = isDirect;
    this.#lab = lab;
    this.#folder = folder;
    this.#certificates = certificates;
    this.etcd = etcd;
    this.#undo = undo;
  }

  host(name: HostName): Host {
    return this.#lab.host(name);
  }

  /** The same, where its programs are started. */
  programHost(name: HostName): Host {
    const host = this.host(name);
    if (!this.isDirect) return host;
    const socketPath = directSocketPath(`${this.#lab.id}-${name}`, this.#folder);
    const env = directEnvironment(process.env, directLibrary(), socketPath);
    // Offered early, so that connections of all behaviours are direct at some time.
    return host.withEnv({ ...env, MILLRACE_DIRECT_AFTER: '4' });
  }

  programs(name: HostName): readonly Traffic[] {
    return this.traffic.filter(({ host }) => host.name === name);
  }

  peerOf(name: HostName): HostName {
    return name === 'a' ? 'b' : 'a';
  }

  /** Those that run. */
  get daemons(): readonly DaemonProcess[] {
    return [...this.#daemons.values()];
  }

  daemon(name: HostName): DaemonProcess {
    const daemon = this.#daemons.get(name);
    if (daemon === undefined) throw new Error(`no daemon runs in host ${name}`);
    return daemon;
  }

  async startDaemon(name: HostName): Promise<void> {
    const host = this.host(name);
    const { ca, nodes } = this.#certificates;
    const own = nodes.find((node) => node.name === name);
    const faults = this.deviceFaults === undefined ? {} : { MILLRACE_FAULTS: JSON.stringify(this.deviceFaults) };
    const settings = {
      ...daemonSettings({
        host,
        peers: [this.host(this.peerOf(name))],
        folder: this.#folder,
        devices: this.devices,
        ...(own !== undefined && { certificates: { ca, cert: own.cert, key: own.key } }),
      }),
      peers: [],
      ...(this.isDirect && { rules: [] }),
      etcd: { endpoints: [this.etcd.endpoint], leaseSeconds: 15 },
      channel: channelSettings,
      drainSeconds: 1,
    };
    const env = { ...process.env, MILLRACE_ALLOW_BREAK: '1', ...faults };
    const daemon = await DaemonProcess.start(host, this.#folder, settings, env);
    this.#daemons.set(name, daemon);
    this.log.follow(daemon);
    void daemon.exit().then(() => {
      if (this.#daemons.get(name) !== daemon) return;
      this.#daemons.delete(name);
      this.log.unexpected.push(`daemon ${name} ended by itself: ${daemon.exitCode ?? 'killed'}`);
    });
  }

  /** In order; the exit code says whether it was. */
  async stopDaemon(name: HostName): Promise<number | null> {
    const daemon = this.daemon(name);
    this.#daemons.delete(name);
    await daemon.stop();
    return daemon.exitCode;
  }

  async killDaemon(name: HostName): Promise<void> {
    const daemon = this.daemon(name);
    this.#daemons.delete(name);
    await daemon.kill();
  }

  /** As if the host's cable were drawn: the switch's end goes down. */
  async setWire(name: HostName, state: 'up' | 'down'): Promise<void> {
    const { record } = this.#lab;
    const port = `port${hostIndexOf(record, name) + 1}`;
    await run('ip', ['-n', switchNamespaceOf(record.id), 'link', 'set', port, state]);
  }

  /** Breaks the control connections of a host's daemon, and nothing else. */
  async cutControl(name: HostName): Promise<void> {
    const port = `:${CONTROL_PORT}`;
    await this.host(name).run('ss', ['-K', 'sport', '=', port, 'or', 'dport', '=', port]);
  }

  /** What is still pinned of daemons that are gone. */
  pins(): readonly string[] {
    const places = hostNames.map((name) => `/sys/fs/bpf/millrace/${this.#lab.id}-${name}`);
    return places.filter((place) => existsSync(place));
  }

  async close(): Promise<void> {
    await Promise.all(hostNames.filter((name) => this.#daemons.has(name)).map((name) => this.killDaemon(name)));
    for (const name of hostNames) removeInstance(`${this.#lab.id}-${name}`);
    await this.#undo.disposeAsync();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
