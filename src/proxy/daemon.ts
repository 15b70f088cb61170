// The daemon: steering in the kernel, lanes that carry, a control plane for its peers, and what
// people want to know of it.

import type { Config } from '../config/index.ts';
import { changedKeys } from '../config/index.ts';
import type { DirectServer, LibraryNews } from '../direct/index.ts';
import { MillraceError, SystemError } from '../errors.ts';
import { Descriptors } from '../headroom/index.ts';
import type { WatchdogSettings } from '../lane/index.ts';
import { type Address, IdleCollector, ip, limitHeapGrowth } from '../native/index.ts';
import { mergeDirectories, type PeerDirectory, StaticDirectory } from '../peers/index.ts';
import type { StatusSource } from '../status/index.ts';
import { isConnectionHeard, publishDaemon } from '../status/index.ts';
import {
  type Connection,
  eventKinds,
  followListeners,
  hostOf as hostOfAddress,
  type IpEndpoint,
  ownAddresses,
  type Passage,
  parseRules,
  Steering,
  type Verdict,
  verdictName,
} from '../steering/index.ts';
import { readSecurity } from '../tls/index.ts';
import { SignsOfLife } from '../watchdog/index.ts';
import { Acceptance } from './acceptance.ts';
import { Admission } from './admission/index.ts';
import { Announcements } from './announcements.ts';
import { BigSegments } from './big-segments.ts';
import { ControlPlane, type ControlSecurity, makeIncarnation } from './control/index.ts';
import { DirectMesh, startDirect, tellDirectOf } from './direct-mesh.ts';
import { EtcdPeers, etcdSpecOf } from './etcd-peers.ts';
import { HostListeners } from './host-listeners.ts';
import { hearLane } from './lane-news.ts';
import { LaneWatch, SIGN_MS, stuckReasons } from './lane-watch.ts';
import { Lanes } from './lanes.ts';
import { Namespaces } from './namespaces.ts';
import { Overload } from './overload.ts';
import { OwnAddresses } from './own-addresses.ts';
import type { Knocks } from './peer.ts';
import { PeerTable } from './peer-table.ts';
import { PlainLog } from './plain-log.ts';
import { Readiness } from './readiness.ts';
import { reportError, throttled } from './report-error.ts';
import { DaemonReporter } from './reporter.ts';
import { whoIsBelieved } from './who-is-believed.ts';

interface ProxyDaemonOptions {
  readonly config: Config;
  /** Reads the config again. */
  readonly reload?: () => Promise<Config>;
}

interface DaemonParts {
  readonly steering: Steering;
  readonly lanes: Lanes;
  readonly laneWatch: LaneWatch;
  readonly overload: Overload;
  readonly peers: PeerTable;
  readonly control: ControlPlane;
  readonly listeners: HostListeners;
  readonly addresses: OwnAddresses;
  readonly namespaces: Namespaces;
  readonly admission: Admission;
  readonly direct: DirectServer | undefined;
  /** What `direct` tells of programs that have the library. */
  readonly library: { -readonly [Name in keyof LibraryNews]: LibraryNews[Name] };
  readonly statics: StaticDirectory;
  readonly etcd: EtcdPeers;
  readonly directory: PeerDirectory;
  readonly plain: PlainLog;
  readonly readiness: Readiness;
  readonly reporter: DaemonReporter;
}

const DRAIN_POLL_MS = 50;
const COLLECT_MS = 2000;
/** A share of its time, below which the main thread idles. */
const IDLE_UTILIZATION = 0.1;
/**
 * When this variable is 1, requests on the control socket may break links, for tests and
 * demonstrations.
 */
const ALLOW_BREAK_VARIABLE = 'MILLRACE_ALLOW_BREAK';

/** Connects that may be carried next time, if the daemon finds a way for them. */
const wantsWay: ReadonlySet<Verdict> = new Set(['notAnnounced', 'notServed', 'notAdmitted']);

export class ProxyDaemon implements AsyncDisposable {
  readonly source: StatusSource;
  readonly #options: ProxyDaemonOptions;
  readonly #parts: DaemonParts;
  readonly #undo: AsyncDisposableStack;
  readonly #scanListeners: () => void;
  #config: Config;
  #closing: Promise<void> | undefined;

  /** All of it, or nothing: what was made before a failure is undone in reverse order. */
  static async start(options: ProxyDaemonOptions): Promise<ProxyDaemon> {
    const { config } = options;
    const { node, instance } = config;
    limitHeapGrowth();
    publishDaemon({ what: 'starting', node, instance, detail: whoIsBelieved(config) });
    await using undo = new AsyncDisposableStack();
    const security = await readSecurity(config.tls);
    const etcdSpec = await etcdSpecOf(config);
    const listen = addressesOf(config);
    const parts = await makeParts(config, security, listen, undo);
    const scanListeners = connectParts(parts, undo);
    parts.etcd.use(etcdSpec);
    // Last: a daemon that cannot start must not lower the limit that another daemon of this host
    // has raised.
    if (config.bigSegments) undo.use(raiseSegments());
    parts.steering.serve(config.lanes);
    const daemon = new ProxyDaemon(options, parts, scanListeners, undo.move());
    parts.readiness.begin();
    return daemon;
  }

  private constructor(
    options: ProxyDaemonOptions,
    parts: DaemonParts,
    scanListeners: () => void,
    undo: AsyncDisposableStack,
  ) {
    this.#options = options;
    this.#scanListeners = scanListeners;
    this.#config = options.config;
    this.#parts = parts;
    this.#undo = undo;
    const { reporter } = parts;
    this.source = {
      status: () => reporter.status(),
      connections: () => reporter.connections(),
      explain: (which) => reporter.explain(which),
      reload: () => this.reload(),
      ...(process.env[ALLOW_BREAK_VARIABLE] === '1' && {
        breakLinks: async (peer) => {
          parts.lanes.tellAll({ kind: 'break', peer });
          return [`the links to ${peer} are broken`];
        },
      }),
    };
  }

  /** Rejects when a part of it has died: it cannot go on. */
  get failed(): Promise<never> {
    return this.#parts.lanes.failed;
  }

  /**
   * Takes over what can be changed while the daemon runs; the answer says what, and what needs a
   * restart. Throws and changes nothing when the config is wrong.
   */
  async reload(): Promise<readonly string[]> {
    const read = this.#options.reload;
    if (read === undefined) throw new MillraceError('MILLRACE_ERR_UNSUPPORTED', 'reload: there is no config file');
    const { steering, statics, control, listeners, etcd, reporter } = this.#parts;
    const next = await read();
    const { reloadable, needRestart } = changedKeys(this.#config, next);
    const security = await readSecurity(next.tls);
    const etcdSpec = await etcdSpecOf(next);
    const rules = parseRules(next.rules.join('\n'));
    const acceptance = new Acceptance(next.accept);
    if (reloadable.includes('rules')) steering.setRules(rules);
    if (reloadable.includes('peers')) statics.replace(next.peers);
    if (reloadable.includes('accept')) {
      listeners.setAcceptance(acceptance);
      this.#scanListeners();
    }
    // Certificates are renewed in place: the config need not have changed.
    const isSecurityNew = control.setSecurity(security);
    const isEtcdNew = etcd.use(etcdSpec);
    const isRenewed = (isSecurityNew && !reloadable.includes('tls')) || (isEtcdNew && !reloadable.includes('etcd'));
    const taken = [...reloadable, ...(isRenewed ? ['certificates'] : [])];
    const { node, instance } = this.#config;
    const isTrustNew = (['tls', 'insecure', 'etcd'] as const).some((key) => reloadable.includes(key));
    const kept = Object.fromEntries(needRestart.map((key) => [key, this.#config[key]]));
    this.#config = { ...next, ...kept };
    reporter.config = this.#config;
    const lines = [
      taken.length === 0 ? 'nothing changed' : `taken over: ${taken.join(', ')}`,
      ...(needRestart.length === 0 ? [] : [`needs a restart: ${needRestart.join(', ')}`]),
      ...(isTrustNew ? [whoIsBelieved(this.#config)] : []),
    ];
    publishDaemon({ what: 'reloaded', node, instance, detail: lines.join('; ') });
    return lines;
  }

  /**
   * New connections go by plain TCP, and direct ones go back there; carried ones may end by
   * themselves for `drainSeconds`, or until the signal.
   */
  async drain(signal?: AbortSignal): Promise<void> {
    const { node, instance, drainSeconds } = this.#config;
    const { readiness, steering, listeners, lanes, direct } = this.#parts;
    readiness.end();
    publishDaemon({ what: 'draining', node, instance, detail: '' });
    steering.stopServing();
    // Programs on the peers' hosts use plain TCP from now on, too.
    listeners.withdraw();
    direct?.drain();
    const endMs = performance.now() + drainSeconds * 1000;
    while (performance.now() < endMs && signal?.aborted !== true) {
      const reports = await lanes.reports();
      if (reports.every(({ lane }) => lane.connections === 0)) return;
      const { promise, resolve } = Promise.withResolvers<void>();
      setTimeout(resolve, DRAIN_POLL_MS);
      await promise;
    }
  }

  /** Undoes the start in reverse order: new connections go by plain TCP, carried ones are reset. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(): Promise<void> {
    this.#parts.readiness.end();
    await this.#undo.disposeAsync();
    const { node, instance } = this.#config;
    publishDaemon({ what: 'stopped', node, instance, detail: '' });
  }
}

/** Makes all parts, from the kernel up. None of them acts yet. */
async function makeParts(
  config: Config,
  security: ControlSecurity,
  listen: readonly Address[],
  undo: AsyncDisposableStack,
): Promise<DaemonParts> {
  const { node, instance, cgroup, devices, device, channel, socketBufferBytes } = config;
  const asksPackets = config.admission === 'packets';
  const rules = parseRules(config.rules.join('\n'));
  const steering = undo.use(Steering.create({ instance, cgroup, rules, asksPackets }));
  const host = hostOf(listen[0]);
  const watchdog = watchdogSettings(config);
  const descriptors = Descriptors.create();
  const lanes = undo.use(
    await Lanes.start(config.lanes, {
      instance,
      listen,
      devices,
      device: { ...device, address: device.address ?? host },
      channel,
      socketBufferBytes,
      asksPackets,
      watchdog,
      descriptors: descriptors.memory,
    }),
  );
  // A peer that announces and withdraws again and again makes no line for each time.
  const tableLines = throttled('peers');
  const announcements = new Announcements(steering, (isFull) => {
    const full =
      'the table of what peers announce is full: those that announce most are carried in part, the rest is plain TCP';
    tableLines.report(isFull ? full : 'the table of what peers announce has room for all again');
  });
  const peerLines = throttled('channel');
  const onPeerError = (message: string, peer: string): void => peerLines.report(message, peer);
  const knocks: Knocks = {
    announced: (to) => admission.announced(to),
    withdrawn: (to) => admission.withdrawn(to),
    asked: (to) => admission.asked(to),
  };
  const ringBytes = config.direct.enabled ? config.direct.ringBytes : undefined;
  const peers = undo.use(new PeerTable(node, { lanes, announcements, knocks, ringBytes }, onPeerError));
  const control = undo.use(
    await ControlPlane.start({
      name: node,
      listen: listen.map((address) => ({ host: hostOf(address), port: config.listen.controlPort })),
      security,
      hello: {
        incarnation: makeIncarnation(),
        lanes: config.lanes,
        wires: devices,
        admission: config.admission,
        ringBytes,
      },
      peers: [],
      heartbeatMs: channel.heartbeatMs,
      deadMs: channel.deadMs,
      handlers: {
        onUp: (name, connection, hello) => {
          peers.get(name)?.connected(connection, hello);
          direct?.hear({ kind: 'peerUp', peer: name, isDialer: connection.isDialer });
        },
        onDown: (name, reason) => {
          peers.get(name)?.disconnected(reason);
          admission.peerDown(name);
          direct?.hear({ kind: 'peerDown', peer: name });
        },
        onRevoked: (name, reason) => peers.get(name)?.revoked(reason),
        onDialFailed: (name, reason) => peers.get(name)?.dialFailed(reason),
        onAddresses: (name, hosts, known) => {
          peers.addressesChanged(name, hosts);
          void lanes.settled().then(known);
        },
        onListeners: (name, added, removed) => peers.listenersChanged(name, added, removed),
        onLibraryListeners: (name, added, removed) => peers.get(name)?.libraryChanged(added, removed),
        onKnock: (name, message) => admission.hearKnock(name, message),
        onGate: (name, message) => admission.hearGate(name, message),
        onDirect: (name, word) => direct?.hear({ kind: 'word', peer: name, word }),
        onLink: (name, link, body) => peers.get(name)?.hearLink(link, body),
        onError: (error) => reportError('control', error.message, error.code),
      },
    }),
  );
  // Lanes that ask packets know servers by their gates.
  const hearers = asksPackets ? { control } : { control, lanes };
  const listeners = undo.use(new HostListeners(new Acceptance(config.accept), hearers));
  // Peers first: what a client opens is refused until its address is known.
  const addresses = new OwnAddresses(async (hosts) => {
    peers.setOwnAddresses(hosts);
    await control.setAddresses(hosts);
  });
  const namespaces = undo.use(new Namespaces(steering.cgroup, lanes, (hosts) => addresses.set('namespaces', hosts)));
  const whyNot = (peer: string, server: IpEndpoint): string => listeners.whyNot(peer, server);
  const { admissions } = steering;
  const admission = undo.use(
    new Admission({
      asksPackets,
      idle: config.idleDestinations,
      admissions,
      namespaces,
      peers,
      lanes,
      control,
      whyNot,
    }),
  );
  const port = control.addresses[0]?.port ?? config.listen.controlPort;
  const statics = new StaticDirectory(config.peers);
  const etcd = new EtcdPeers({
    self: { name: node, host, port },
    onError: (message) => reportError('etcd', message, ''),
  });
  const directory = undo.use(mergeDirectories(statics, etcd));
  const readiness = new Readiness(directory, () => stuckReasons(lanes.stuckMs), { node, instance });
  const laneWatch = new LaneWatch(watchdog, lanes, () => readiness.check());
  const plain = new PlainLog();
  const overload = new Overload(descriptors, listeners);
  const hasRoom = (): boolean => !descriptors.isShort;
  const library = {
    onProcess: (pid: number, isThere: boolean) => steering.setLibraryProcess(pid, isThere),
    onListeners: () => {},
  };
  const direct = undo.use(startDirect(config, new DirectMesh({ name: node, peers, lanes, control }), library, hasRoom));
  const known = { steering, lanes, peers, control, listeners, namespaces, admission, direct, plain, readiness };
  const reporter = new DaemonReporter({ config, announcements, overload, ...known });
  return { ...known, laneWatch, overload, library, addresses, statics, etcd, directory, reporter };
}

/** From here on the parts hear of each other. The answer lets them look for listeners again. */
function connectParts(parts: DaemonParts, undo: AsyncDisposableStack): () => void {
  const { steering, lanes, peers, control, listeners, addresses, namespaces, admission, plain, readiness } = parts;
  const { etcd, directory, reporter, direct, library } = parts;
  const setPeers = (): void => {
    peers.replace(directory.peers);
    listeners.setPeers(directory.peers.map(({ name }) => name));
    control.setPeers(directory.peers);
    readiness.check();
  };
  const laneLines = { ofPeers: throttled('channel'), ofLanes: throttled('lane') };
  lanes.onMessage((message) => {
    hearLane(message, peers, laneLines);
    if (direct !== undefined) tellDirectOf(message, direct);
  });
  directory.onChange(setPeers);
  etcd.onProblem(() => readiness.check());
  setPeers();
  const follower = undo.use(
    followListeners({
      needsCommands: () => listeners.needsCommands,
      hasLibrary: (inode) => direct?.hasListener(inode) === true,
      others: () => namespaces.served,
      onListeners: (found, here) => {
        void addresses.set('host', here);
        listeners.setListeners(found);
      },
    }),
  );
  library.onListeners = () => follower.scanSoon();
  const lines = throttled('steering');
  const onLost = (): void => {
    namespaces.discover();
    follower.scanSoon();
    lines.report('programs connect or listen faster than the daemon hears of it: it looks for listeners itself');
  };
  steering.onEvent((event) => {
    const { connection } = event;
    if (event.kind !== eventKinds.connect) {
      if (event.kind === eventKinds.listen) namespaces.found(connection.netns, connection.pid);
      follower.onEvent(event);
      return;
    }
    if (wantsWay.has(verdictName(connection.verdict))) {
      namespaces.found(connection.netns, connection.pid);
      admission.wanted(passageOf(connection));
    }
    plain.add(connection, reporter.whyPlain(connection));
  }, onLost);
  namespaces.onChange(() => follower.scan());
  // Those that were there before.
  namespaces.discover();
  undo.use(beginTicks(parts));
  undo.use(collectWhenIdle());
  // Undone first: no new connections come, and lanes end while their peers can still be told.
  undo.defer(async () => {
    steering.stopServing();
    await lanes.close();
  });
  return () => follower.scan();
}

/** Where a connect came from, and where it went. */
function passageOf({ netns, source, original }: Connection): Passage {
  const from = source.address.every((word) => word === 0) ? '' : hostOfAddress(source.address);
  return { netns, from, to: original };
}

/** Only speed depends on it, so the daemon starts without it. */
function raiseSegments(): BigSegments | null {
  try {
    return BigSegments.raise();
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    reportError(
      'daemon',
      `raise the segment size of the loopback device: ${error.message}; bulk transfers are slower (bigSegments: false turns this off)`,
      '',
    );
    return null;
  }
}

/**
 * What is looked at now and then, by one timer: an idle daemon wakes up for it. Lanes tell of
 * single connections only while somebody subscribes to them.
 */
function beginTicks({ lanes, laneWatch, overload }: DaemonParts): Disposable {
  let wasHeard = false;
  // The first sign at once: before it, nobody watches the main thread.
  laneWatch.look();
  const timer = setInterval(() => {
    laneWatch.look();
    overload.look();
    const isHeard = isConnectionHeard();
    if (isHeard === wasHeard) return;
    wasHeard = isHeard;
    lanes.tellAll({ kind: 'subscribe', isSubscribed: isHeard });
  }, SIGN_MS);
  return { [Symbol.dispose]: () => clearInterval(timer) };
}

function watchdogSettings({ node, lanes, watchdog }: Config): WatchdogSettings {
  const { stuckSeconds, restartSeconds } = watchdog;
  const giveUpMs = restartSeconds === 0 ? Number.POSITIVE_INFINITY : restartSeconds * 1000;
  return { signs: SignsOfLife.create(lanes + 1).memory, node, stuckMs: stuckSeconds * 1000, giveUpMs };
}

/** Looks at the heap of the main thread every few seconds. */
function collectWhenIdle(): Disposable {
  const collector = new IdleCollector();
  let since = performance.eventLoopUtilization();
  const timer = setInterval(() => {
    const now = performance.eventLoopUtilization();
    if (performance.eventLoopUtilization(now, since).utilization < IDLE_UTILIZATION) collector.onIdle();
    since = now;
  }, COLLECT_MS);
  return { [Symbol.dispose]: () => clearInterval(timer) };
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
