// One lab host, or two, with a daemon each, in which programs are started with the library or
// without; and the proof that their connections were direct or plain.

import { directEnvironment, directLibrary } from '../../src/direct/launch/index.ts';
import { MillraceError } from '../../src/errors.ts';
import { type Host, Lab } from '../../src/lab/index.ts';
import type { DirectStatus } from '../../src/status/index.ts';
import { removeInstance } from '../../src/steering/index.ts';
import { directSocketPath } from '../../src/system/index.ts';
import { DaemonProcess, daemonSettings, instanceOf, temporaryFolder } from '../worlds/index.ts';
import { compiled } from './compiled.ts';
import type { PeerHosts } from './steer-peers.ts';

/** Plain TCP, too, is `ctl`: with a library that puts off epoll_ctl (c/epoll-later.c). */
export type DirectPath = 'direct' | 'plain' | 'ctl';
export type DirectWire = 'shm' | 'tcp';

interface DirectWorldOptions {
  /** Between the daemons of two hosts. Without it, there is one host. */
  readonly wire?: DirectWire | undefined;
  readonly signal: AbortSignal;
}

export class DirectWorld implements AsyncDisposable {
  /** The same hosts; what is started there takes that path. */
  readonly hosts: Readonly<Record<DirectPath, PeerHosts>>;
  readonly #options: DirectWorldOptions;
  readonly #folder: string;
  readonly #daemons = new Map<Host, DaemonProcess>();
  readonly #undo: AsyncDisposableStack;

  static async create(options: DirectWorldOptions): Promise<DirectWorld> {
    const { wire, signal } = options;
    const library = directLibrary();
    const later = await compiled('epoll-later', signal, 'library');
    await using undo = new AsyncDisposableStack();
    const folder = undo.use(temporaryFolder('direct')).path;
    const lab = undo.use(await Lab.create({ hosts: ['client', 'server'], signal }));
    const client = lab.host('client');
    const server = wire === undefined ? client : lab.host('server');
    // What `millrace run` sets; the library is loaded into that program alone.
    const direct = (host: Host): Host =>
      host.withEnv(directEnvironment(process.env, library, directSocketPath(instanceOf(host), folder)));
    const ctl = (host: Host): Host => host.withEnv({ LD_PRELOAD: later });
    const hosts = {
      direct: { client: direct(client), server: direct(server) },
      plain: { client, server },
      ctl: { client: ctl(client), server: ctl(server) },
    };
    const world = new DirectWorld(hosts, options, folder, undo.move());
    try {
      const started = [...new Set([client, server])].map((host) => world.#start(host));
      // None is under way any more when this fails.
      await Promise.allSettled(started);
      await Promise.all(started);
      if (wire !== undefined) await Promise.all(world.#daemons.values().map((daemon) => daemon.peerUp()));
      return world;
    } catch (error) {
      await world[Symbol.asyncDispose]();
      throw error;
    }
  }

  private constructor(
    hosts: DirectWorld['hosts'],
    options: DirectWorldOptions,
    folder: string,
    undo: AsyncDisposableStack,
  ) {
    this.hosts = hosts;
    this.#options = options;
    this.#folder = folder;
    this.#undo = undo;
  }

  async #start(host: Host): Promise<void> {
    const { client, server } = this.hosts.plain;
    const { wire = 'shm' } = this.#options;
    const peers = client === server ? [] : [host === client ? server : client];
    const settings = daemonSettings({ host, peers, folder: this.#folder, devices: [`soft-${wire}`] });
    // Nothing is carried: what does not become direct is plain TCP.
    const more = { rules: [], log: { level: 'warn', format: 'json' }, drainSeconds: 1 };
    this.#daemons.set(host, await DaemonProcess.start(host, this.#folder, { ...settings, ...more }));
  }

  /** The daemon is killed, and started anew. */
  async kill(which: keyof PeerHosts): Promise<void> {
    const host = this.hosts.plain[which];
    await this.#daemonOf(which).kill();
    this.#options.signal.throwIfAborted();
    await this.#start(host);
  }

  async status(which: keyof PeerHosts): Promise<DirectStatus> {
    return (await this.#daemonOf(which).status()).direct;
  }

  /**
   * Fails unless both daemons promoted so many connections meanwhile, over that wire, and declined
   * none; if none should be direct, unless none was promoted.
   */
  async measured(path: DirectPath, connections: number, measure: () => Promise<number>): Promise<number> {
    const before = await this.#counted();
    const figure = await measure();
    const after = await this.#counted();
    const [promoted, declined] = [after.promoted - before.promoted, after.declined - before.declined];
    const least = path === 'direct' ? connections : 0;
    const isRight = least === 0 ? promoted === 0 : promoted >= least;
    if (isRight && declined === 0 && after.isRightWire) return figure;
    throw new MillraceError(
      'MILLRACE_ERR_FAILED',
      `measure direct connections: on the path '${path}' ${promoted} were promoted and ${declined} declined`,
    );
  }

  /** By the daemon that promoted fewer. */
  async #counted(): Promise<{ promoted: number; declined: number; isRightWire: boolean }> {
    const { wire } = this.#options;
    const all = await Promise.all(this.#daemons.values().map((daemon) => daemon.status()));
    const known = all.flatMap(({ peers }) => peers.flatMap((peer) => peer.links));
    const links = known.filter(({ state }) => state !== 'idle');
    return {
      promoted: Math.min(...all.map(({ direct }) => direct.promoted)),
      declined: all.reduce((sum, { direct }) => sum + direct.declined, 0),
      isRightWire: wire === undefined || (links.length > 0 && links.every((link) => link.wire === wire)),
    };
  }

  #daemonOf(which: keyof PeerHosts): DaemonProcess {
    const daemon = this.#daemons.get(this.hosts.plain[which]);
    if (daemon !== undefined) return daemon;
    throw new MillraceError('MILLRACE_ERR_FAILED', `measure direct connections: no daemon runs on the ${which}'s host`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await using _undo = this.#undo;
    for (const daemon of this.#daemons.values()) {
      await daemon[Symbol.asyncDispose]();
      // Should it not have lived to do it.
      removeInstance(daemon.instance);
    }
  }
}
