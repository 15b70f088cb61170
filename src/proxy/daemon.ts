// The daemon: steering in the kernel, lanes that carry, peers that are called and call, and what people want to know of it.

import type { Config } from '../config/index.ts';
// Not by the rooms' indexes: a program with a daemon in it, in a guest say, need not load the parser, the log and the metrics.
import { changedKeys } from '../config/index.ts';
import { MillraceError, SystemError } from '../errors.ts';
import type { FromLane } from '../lane/index.ts';
import { LaneThread } from '../lane/index.ts';
import { type Address, ip } from '../native/index.ts';
import { mergeDirectories, type PeerDirectory, StaticDirectory } from '../peers/index.ts';
import type { StatusSource } from '../status/index.ts';
import { isConnectionHeard, publishConnection, publishDaemon, publishError } from '../status/index.ts';
import {
  type Event,
  eventKinds,
  followListeners,
  formatIpEndpoint,
  ownAddresses,
  type Service,
  Steering,
} from '../steering/index.ts';
import { formatHostPort } from '../text/index.ts';
import { readTlsMaterial } from '../tls/index.ts';
import { BigSegments } from './big-segments.ts';
import { ControlPlane, type ControlSecurity, makeIncarnation } from './control/index.ts';
import { DeathProbes } from './death-probes.ts';
import { EtcdPeers, etcdSpecOf } from './etcd-peers.ts';
import { ListenerFilter } from './listener-filter.ts';
import { PeerBook } from './peer-book.ts';
import { PlainLog } from './plain-log.ts';
import { Readiness } from './readiness.ts';
import { DaemonReporter } from './reporter.ts';
import { daemonRules } from './rules.ts';

export interface ProxyDaemonOptions {
  readonly config: Config;
  /** Reads the config again. */
  readonly reload?: () => Promise<Config>;
}

const DRAIN_LOOK_MS = 50;
/** For trials: 1 lets whoever may use the control socket break links. */
const ALLOW_BREAK_VARIABLE = 'MILLRACE_ALLOW_BREAK';
const HEARERS_LOOK_MS = 500;

export class ProxyDaemon implements AsyncDisposable {
  readonly source: StatusSource;
  readonly #options: ProxyDaemonOptions;
  readonly #undo: AsyncDisposableStack;
  readonly #lanes: readonly LaneThread[];
  readonly #steering: Steering;
  readonly #control: ControlPlane;
  readonly #static: StaticDirectory;
  readonly #etcd: EtcdPeers;
  readonly #reporter: DaemonReporter;
  readonly #readiness: Readiness;
  readonly #failure = Promise.withResolvers<never>();
  #config: Config;
  #isClosed = false;

  /** All of it, or nothing. */
  static async start(options: ProxyDaemonOptions): Promise<ProxyDaemon> {
    const { config } = options;
    const { node, instance } = config;
    publishDaemon({ what: 'starting', node, instance, detail: '' });
    await using undo = new AsyncDisposableStack();
    const security = await securityOf(config);
    const etcdSpec = await etcdSpecOf(config);
    const listen = addressesOf(config);
    const failure: { report?: (reason: string) => void } = {};
    const steering = undo.use(Steering.create({ instance, cgroup: config.cgroup, rules: daemonRules(config) }));
    const hear: { message?: (message: FromLane) => void } = {};
    const lanes: LaneThread[] = [];
    for (let index = 0; index < config.lanes; index++) {
      const settings = {
        index,
        lanes: config.lanes,
        instance,
        listen,
        devices: config.devices,
        device: { ...config.device, address: config.device.address ?? hostOf(listen[0]) },
        channel: config.channel,
        socketBufferBytes: config.socketBufferBytes,
      };
      const onDeath = (reason: string): void => failure.report?.(`lane ${index} died: ${reason}`);
      lanes.push(undo.use(await LaneThread.start(settings, (message) => hear.message?.(message), onDeath)));
    }
    const addressOf = (name: string): string => {
      const peer = control.peers().find((view) => view.peer.name === name)?.peer;
      return peer === undefined ? '' : formatHostPort(peer);
    };
    const book = new PeerBook(lanes, steering, addressOf);
    const statics = new StaticDirectory(config.peers);
    const plain = new PlainLog();
    const probes = undo.use(
      new DeathProbes(
        (name) => control.peers().find(({ peer }) => peer.name === name)?.peer,
        (name) => book.dead(name),
      ),
    );
    const control = undo.use(
      await ControlPlane.start({
        name: node,
        listen: listen.map((address) => ({ host: hostOf(address), port: config.listen.controlPort })),
        security,
        hello: { incarnation: makeIncarnation(), lanes: config.lanes, wires: config.devices },
        peers: statics.peers,
        heartbeatMs: config.channel.heartbeatMs,
        deadMs: config.channel.deadMs,
        handlers: {
          onUp: (peer, hello, isDialer) => {
            probes.stop(peer);
            book.up(peer, hello, isDialer);
          },
          onDown: (peer, reason) => {
            book.down(peer, reason);
            probes.start(peer);
          },
          onListeners: (peer, added, removed) => book.hearListeners(peer, own.filter(peer, added), removed),
          onLink: (peer, link, body) => book.hearLink(peer, link, body),
          onError: (error) => reportError('control', error.message, error.code),
        },
      }),
    );
    const own = new ListenerFilter((name) => control.peers().filter(({ peer }) => peer.name !== name), reportError);
    const controlPort = control.addresses[0]?.port ?? config.listen.controlPort;
    const etcd = new EtcdPeers({
      self: { name: node, host: hostOf(listen[0]), port: controlPort },
      onError: (message) => reportError('etcd', message, ''),
      onProblem: () => readiness.look(),
    });
    const directory = undo.use(mergeDirectories(statics, etcd));
    const reporter = new DaemonReporter({ config, steering, lanes, control, book, plain, directory });
    const readiness = new Readiness(reporter, node, instance);
    directory.onChange(() => readiness.look());
    etcd.use(etcdSpec);
    control.setPeers(directory.peers);
    hear.message = (message) => {
      if (message.kind === 'link') control.sendLink(message.peer, message.link, message.body);
      else if (message.kind === 'state') book.linkState(message);
      else if (message.kind === 'error') reportError('lane', message.message, '');
      else if (message.kind === 'connection') publishConnection(message.event);
      else if (message.kind === 'protocolError') {
        reportError(
          'channel',
          `peer ${message.peer} broke the rules: ${message.reason}; its context is closed`,
          '',
          message.peer,
        );
        control.drop(message.peer, message.reason);
      }
    };
    followPeers(directory, control, book);
    const follower = undo.use(
      followListeners((endpoints) => {
        // Lanes first: a peer may call as soon as it is told.
        for (const lane of lanes) lane.tell({ kind: 'listeners', endpoints: endpoints.map(formatIpEndpoint) });
        control.setListeners(endpoints);
      }),
    );
    steering.onEvent((event: Event) => {
      if (event.kind === eventKinds.connect) plain.add(event.connection, (remote) => reporter.whyNotAnnounced(remote));
      else follower.onEvent(event);
    });
    undo.use(followHearers(lanes));
    // Last: one that cannot start must not lower what another daemon of this host has raised.
    if (config.bigSegments) undo.use(raiseSegments());
    steering.serve(serviceOf(listen));
    const daemon = new ProxyDaemon(options, undo.move(), {
      steering,
      lanes,
      control,
      statics,
      etcd,
      reporter,
      readiness,
    });
    failure.report = (reason) => daemon.#failure.reject(new MillraceError('MILLRACE_ERR_FAILED', reason));
    reporter.state = 'ready';
    readiness.begin();
    return daemon;
  }

  private constructor(
    options: ProxyDaemonOptions,
    undo: AsyncDisposableStack,
    parts: {
      readonly steering: Steering;
      readonly lanes: readonly LaneThread[];
      readonly control: ControlPlane;
      readonly statics: StaticDirectory;
      readonly etcd: EtcdPeers;
      readonly reporter: DaemonReporter;
      readonly readiness: Readiness;
    },
  ) {
    this.#options = options;
    this.#config = options.config;
    this.#undo = undo;
    this.#lanes = parts.lanes;
    this.#steering = parts.steering;
    this.#control = parts.control;
    this.#static = parts.statics;
    this.#etcd = parts.etcd;
    this.#reporter = parts.reporter;
    this.#readiness = parts.readiness;
    this.#failure.promise.catch(() => {});
    this.source = {
      status: () => this.#reporter.status(),
      connections: () => this.#reporter.connections(),
      explain: (which) => this.#reporter.explain(which),
      reload: () => this.reload(),
      ...(process.env[ALLOW_BREAK_VARIABLE] === '1' && {
        breakLinks: async (peer) => {
          this.breakLinks(peer);
          return [`the links to ${peer} are broken`];
        },
      }),
    };
  }

  /** Rejects when a part of it has died: it cannot go on. */
  get failed(): Promise<never> {
    return this.#failure.promise;
  }

  /** For tests: breaks the transports to a peer. */
  breakLinks(peer: string): void {
    for (const lane of this.#lanes) lane.tell({ kind: 'break', peer });
  }

  /** Takes over what can be changed while it runs; what cannot is told in the answer. Throws and changes nothing when the config is wrong. */
  async reload(): Promise<readonly string[]> {
    const read = this.#options.reload;
    if (read === undefined) throw new MillraceError('MILLRACE_ERR_UNSUPPORTED', 'reload: there is no config file');
    const next = await read();
    const { reloadable, needRestart } = changedKeys(this.#config, next);
    const security = await securityOf(next);
    const etcd = await etcdSpecOf(next);
    const rules = daemonRules(next);
    if (reloadable.includes('rules')) this.#steering.setRules(rules);
    if (reloadable.includes('peers')) this.#static.replace(next.peers);
    // Certificates are renewed in place: the config need not have changed.
    const isSecurityNew = this.#control.setSecurity(security);
    const isEtcdNew = this.#etcd.use(etcd);
    const isRenewed = (isSecurityNew && !reloadable.includes('tls')) || (isEtcdNew && !reloadable.includes('etcd'));
    const taken = [...reloadable, ...(isRenewed ? ['certificates'] : [])];
    const { node, instance } = this.#config;
    const kept = Object.fromEntries(needRestart.map((key) => [key, this.#config[key]]));
    this.#config = { ...next, ...kept };
    this.#reporter.config = this.#config;
    const lines = [
      taken.length === 0 ? 'nothing changed' : `taken over: ${taken.join(', ')}`,
      ...(needRestart.length === 0 ? [] : [`needs a restart: ${needRestart.join(', ')}`]),
    ];
    publishDaemon({ what: 'reloaded', node, instance, detail: lines.join('; ') });
    return lines;
  }

  /** New connections go by plain TCP; those that are carried may end by themselves for so long. */
  async drain(signal?: AbortSignal): Promise<void> {
    const { node, instance, drainSeconds } = this.#config;
    this.#reporter.state = 'draining';
    this.#readiness.end();
    publishDaemon({ what: 'draining', node, instance, detail: '' });
    this.#steering.stopServing();
    // Peers' programs, too.
    this.#control.setListeners([]);
    const endMs = performance.now() + drainSeconds * 1000;
    while (performance.now() < endMs && signal?.aborted !== true) {
      const { lanes } = await this.#reporter.status();
      if (lanes.every(({ connections }) => connections === 0)) return;
      const { promise, resolve } = Promise.withResolvers<void>();
      setTimeout(resolve, DRAIN_LOOK_MS);
      await promise;
    }
  }

  /** Detaches first, so that new connections go by plain TCP; those that are carried are reset. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#readiness.end();
    this.#steering.stopServing();
    // While peers can still be told.
    await Promise.all(this.#lanes.map((lane) => lane.close()));
    await this.#undo.disposeAsync();
    const { node, instance } = this.#config;
    publishDaemon({ what: 'stopped', node, instance, detail: '' });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

/** Nothing but speed depends on it. */
function raiseSegments(): BigSegments | null {
  try {
    return BigSegments.raise();
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    reportError('daemon', `segments on the loopback device stay small, and bulk is slower: ${error.message}`, '');
    return null;
  }
}

/** Lanes tell of single connections only while somebody listens. */
function followHearers(lanes: readonly LaneThread[]): Disposable {
  let wasHeard = false;
  const timer = setInterval(() => {
    const isHeard = isConnectionHeard();
    if (isHeard === wasHeard) return;
    wasHeard = isHeard;
    for (const lane of lanes) lane.tell({ kind: 'subscribe', isSubscribed: isHeard });
  }, HEARERS_LOOK_MS);
  return { [Symbol.dispose]: () => clearInterval(timer) };
}

function followPeers(directory: PeerDirectory, control: ControlPlane, book: PeerBook): void {
  let known = directory.peers;
  directory.onChange((peers) => {
    for (const { name } of known) {
      if (!peers.some((peer) => peer.name === name)) book.gone(name, 'it is no peer any more');
    }
    known = peers;
    control.setPeers(peers);
  });
}

async function securityOf({ tls }: Config): Promise<ControlSecurity> {
  if (tls === undefined) return { kind: 'insecure' };
  const { ca, cert, key } = await readTlsMaterial(tls);
  return { kind: 'tls', ca: ca.toString(), cert: cert.toString(), key: key.toString() };
}

function addressesOf({ listen }: Config): readonly Address[] {
  const own = ownAddresses();
  const first = [own.find((host) => !host.includes(':')), own.find((host) => host.includes(':'))];
  const hosts = listen.addresses.length > 0 ? listen.addresses : first.filter((host) => host !== undefined);
  return (hosts.length > 0 ? hosts : ['127.0.0.1']).map((host) => ip(host, listen.proxyPort));
}

function hostOf(address: Address | undefined): string {
  return address === undefined || address.family === 'unix' ? '127.0.0.1' : address.host;
}

function serviceOf(addresses: readonly Address[]): Service {
  const of = (family: 'ipv4' | 'ipv6'): { readonly address: string; readonly port: number } | undefined => {
    const found = addresses.find((address) => address.family === family);
    return found?.family === family ? { address: found.host, port: found.port } : undefined;
  };
  const [ipv4, ipv6] = [of('ipv4'), of('ipv6')];
  return { ...(ipv4 && { ipv4 }), ...(ipv6 && { ipv6 }) };
}

function reportError(where: string, message: string, code: string, peer = ''): void {
  publishError({ where, message, code, peer });
}
