// A lab with one daemon whose many peers one process plays, with the etcd by which it finds them,
// and with one real peer.

import { MillraceError } from '../../src/errors.ts';
import { type Host, Lab } from '../../src/lab/index.ts';
import { removeInstance } from '../../src/steering/index.ts';
import { DaemonProcess, daemonSettings, Etcd, instanceOf, RunningProgram, temporaryFolder } from '../worlds/index.ts';
import { type PlayEvent, type PlayOrder, type PlaySpec, playedNetwork } from './play-protocol.ts';

const CONTROL_PORT = 4790;
const ETCD_PREFIX = '/millrace';
/** The daemon that is measured, who plays its peers (and where etcd is), and its real peer. */
const hostNames = ['m', 'players', 'q'] as const;
/** For whatever a thousand peers do together, on a machine that is busy. */
const WAIT_MS = 300_000;

/** Of the standard error of a daemon that ended: a stack has so many. */
const LAST_LINES = 12;

const playersProgram = new URL('./players-program.ts', import.meta.url).pathname;
const listenerProgram = new URL('./listener-program.ts', import.meta.url).pathname;

interface PeersWorldOptions {
  readonly peers: number;
  readonly dialed: number;
  readonly endpointsEach: number;
  readonly signal: AbortSignal;
}

export class PeersWorld implements AsyncDisposable {
  /** The one that is measured. */
  readonly daemon: DaemonProcess;
  readonly #lab: Lab;
  readonly #folder: string;
  readonly #etcd: Etcd;
  readonly #players: RunningProgram;
  readonly #listeners = new Map<string, RunningProgram>();
  readonly #undo: AsyncDisposableStack;

  /** No peer runs yet. */
  static async create({ peers, dialed, endpointsEach, signal }: PeersWorldOptions): Promise<PeersWorld> {
    await using undo = new AsyncDisposableStack();
    const folder = undo.use(temporaryFolder('scale')).path;
    const lab = undo.use(await Lab.create({ hosts: hostNames, signal }));
    undo.defer(() => {
      for (const host of lab.hosts) removeInstance(instanceOf(host));
    });
    const [m, players, q] = hostNames.map((name) => lab.host(name)) as [Host, Host, Host];
    // All addresses of the network are this host's, however many peers are played.
    await route(players, ['local', playedNetwork, 'dev', 'lo']);
    for (const host of [m, q]) await route(host, [playedNetwork, 'via', players.ipv4]);
    const etcd = undo.use(await Etcd.start({ host: players }));
    const daemon = undo.use(await startDaemon(m, q, folder, etcd));
    const spec: PlaySpec = {
      peers,
      dialed,
      endpointsEach,
      daemon: { name: m.name, host: m.ipv4, port: CONTROL_PORT },
      etcd: { endpoint: etcd.endpoint, prefix: ETCD_PREFIX },
    };
    const program = undo.use(
      RunningProgram.start(players, process.execPath, [playersProgram, JSON.stringify(spec)], { isWritable: true }),
    );
    const world = new PeersWorld({ daemon, lab, folder, etcd, players: program }, undo.move());
    await world.played('ready');
    return world;
  }

  private constructor(
    parts: { daemon: DaemonProcess; lab: Lab; folder: string; etcd: Etcd; players: RunningProgram },
    undo: AsyncDisposableStack,
  ) {
    this.daemon = parts.daemon;
    this.#lab = parts.lab;
    this.#folder = parts.folder;
    this.#etcd = parts.etcd;
    this.#players = parts.players;
    this.#undo = undo;
  }

  host(name: (typeof hostNames)[number]): Host {
    return this.#lab.host(name);
  }

  /** Tells the process that plays. */
  order(order: PlayOrder): void {
    this.#players.write(JSON.stringify(order));
  }

  /** What it tells next of that kind. */
  async played<K extends PlayEvent['event']>(event: K): Promise<Extract<PlayEvent, { event: K }>> {
    const line = await Promise.race([this.#players.line(new RegExp(`^\\{"event":"${event}"`), WAIT_MS), this.#ended()]);
    return JSON.parse(line) as Extract<PlayEvent, { event: K }>;
  }

  /** Rejects when the daemon has ended, with its last words. */
  async #ended(): Promise<never> {
    await this.daemon.exit();
    const last = this.daemon.program.stderr.trimEnd().split('\n').slice(-LAST_LINES).join('\n');
    throw new MillraceError('MILLRACE_ERR_FAILED', `the daemon that is measured ended by itself:\n${last}`);
  }

  /** The real peer, with links. */
  async startRealPeer(): Promise<DaemonProcess> {
    return this.#undo.use(await startDaemon(this.host('q'), this.host('m'), this.#folder, this.#etcd));
  }

  /** A program of that host listens, or stops. Resolves to when it began to. */
  async listen(name: 'm' | 'q', port: number, isThere: boolean): Promise<number> {
    const { ns } = await this.#tellListener(name, `${isThere ? 'listen' : 'close'} ${port}`);
    return ns;
  }

  /** A program of the daemon's host listens and closes. Resolves to how often it did. */
  async churn(perSecond: number, ms: number): Promise<number> {
    const { count } = await this.#tellListener('m', `churn ${perSecond} ${ms}`);
    return count;
  }

  async #tellListener(name: 'm' | 'q', order: string): Promise<{ readonly ns: number; readonly count: number }> {
    const host = this.host(name);
    const words = [listenerProgram, host.ipv4];
    const known = this.#listeners.get(name);
    const program = known ?? this.#undo.use(RunningProgram.start(host, process.execPath, words, { isWritable: true }));
    this.#listeners.set(name, program);
    program.write(order);
    return JSON.parse(await program.line(/"done"/, WAIT_MS)) as { readonly ns: number; readonly count: number };
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#undo.disposeAsync();
  }
}

async function route(host: Host, words: readonly string[]): Promise<void> {
  const { code, stderr } = await host.run('ip', ['route', 'add', ...words]);
  if (code !== 0) throw new Error(`ip route add ${words.join(' ')} in host ${host.name}: ${stderr}`);
}

function startDaemon(host: Host, peer: Host, folder: string, etcd: Etcd): Promise<DaemonProcess> {
  const settings = daemonSettings({ host, peers: [peer], folder, devices: ['soft-shm'] });
  return DaemonProcess.start(host, folder, {
    ...settings,
    rules: [`connect to ${playedNetwork}`, `connect to ${peer.ipv4}`],
    peers: [],
    etcd: { endpoints: [etcd.endpoint], prefix: ETCD_PREFIX, leaseSeconds: 60 },
    drainSeconds: 1,
  });
}
