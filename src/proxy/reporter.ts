// The status, connections and explanations of a daemon, gathered from its parts for the API.

import type { Config } from '../config/index.ts';
import type { DirectServer, OfferReport } from '../direct/index.ts';
import { UsageError } from '../errors.ts';
import type { LaneReport } from '../lane/index.ts';
import type { ConnectionStatus, DaemonStatus } from '../status/index.ts';
import {
  type Check,
  type Connection,
  explainConnection,
  formatIpEndpoint,
  isMeant,
  parseIpEndpoint,
  type Steering,
  SteeringView,
  verdictName,
  verdictWords,
  type Which,
} from '../steering/index.ts';
import { packageVersion } from '../system/index.ts';
import { didYouMean, isNodeName } from '../text/index.ts';
import type { Admission } from './admission/index.ts';
import type { Announcements } from './announcements.ts';
import type { ControlPlane } from './control/index.ts';
import { carriedAndDirect, explainOffer } from './direct-report.ts';
import type { HostListeners } from './host-listeners.ts';
import { stuckReasons } from './lane-watch.ts';
import type { Lanes } from './lanes.ts';
import type { Namespaces } from './namespaces.ts';
import type { Overload } from './overload.ts';
import type { PeerTable } from './peer-table.ts';
import type { PlainLog } from './plain-log.ts';
import type { Readiness } from './readiness.ts';

interface ReporterParts {
  readonly config: Config;
  readonly steering: Steering;
  readonly lanes: Lanes;
  readonly peers: PeerTable;
  readonly control: ControlPlane;
  readonly listeners: HostListeners;
  readonly namespaces: Namespaces;
  readonly plain: PlainLog;
  readonly readiness: Readiness;
  readonly admission: Admission;
  readonly direct: DirectServer | undefined;
  readonly announcements: Announcements;
  readonly overload: Overload;
}

type Counters = DaemonStatus['counters'];

export class DaemonReporter {
  config: Config;
  readonly #parts: ReporterParts;
  readonly #startedMs = Date.now();

  constructor(parts: ReporterParts) {
    this.#parts = parts;
    this.config = parts.config;
  }

  async status(): Promise<DaemonStatus> {
    const { steering, lanes, peers, control, readiness, direct, announcements, overload } = this.#parts;
    const { config } = this;
    const reports = await lanes.reports();
    const links = Map.groupBy(
      reports.flatMap((report) => report.links),
      ({ peer }) => peer,
    );
    const { user, system } = process.cpuUsage();
    return {
      v: 1,
      node: config.node,
      instance: config.instance,
      version: packageVersion(),
      pid: process.pid,
      startedMs: this.#startedMs,
      state: readiness.state,
      notReady: readiness.notReady,
      cgroup: steering.cgroup,
      rules: config.rules,
      peers: peers.all.map((peer) => peer.status(links.get(peer.name) ?? [], control.isSecure)),
      lanes: reports.map(({ lane }) => lane),
      verdicts: steering.counters(),
      listenersLeftOut: announcements.leftOut,
      lostEvents: steering.lostEvents,
      overload: overload.status,
      counters: sum(reports),
      direct: direct?.status ?? { programs: 0, waiting: 0, connections: 0, mirrored: 0, promoted: 0, declined: 0 },
      memory: {
        rssBytes: process.memoryUsage.rss(),
        heldBytes: reports.reduce((bytes, { lane }) => bytes + lane.heldBytes, 0),
        budgetBytes: config.channel.memoryBytes,
      },
      cpuSeconds: (user + system) / 1e6,
    };
  }

  async connections(): Promise<readonly ConnectionStatus[]> {
    return (await this.#gather()).connections;
  }

  async #gather(): Promise<{ offers: readonly OfferReport[]; connections: readonly ConnectionStatus[] }> {
    const { plain, namespaces } = this.#parts;
    const { offers, connections } = await carriedAndDirect(this.#parts);
    const all = [...connections, ...plain.recent];
    return {
      offers,
      connections: all.map((connection) => ({ ...connection, container: namespaces.containerOf(connection.netns) })),
    };
  }

  /** More about a connect that was left to plain TCP than its verdict says. */
  whyPlain({ verdict, original }: Connection): string {
    const { peers, admission, announcements } = this.#parts;
    const name = verdictName(verdict);
    if (name === 'daemonDown') return stuckReasons(this.#parts.lanes.stuckMs).join('; ');
    const unheard = admission.whyNot(original);
    if (name === 'notAnnounced' && announcements.isLeftOut(original)) {
      return 'a peer announced it, but the table of what peers announce is full; see millrace_listeners_left_out';
    }
    if (name === 'notAnnounced') return peers.whyNotAnnounced(formatIpEndpoint(original), unheard);
    return name === 'notAdmitted' ? unheard : '';
  }

  async explain(which: string): Promise<readonly string[]> {
    const meant = parseWhich(which);
    if ('peer' in meant) return [this.#explainPeer(meant)];
    using view = new SteeringView(this.config.instance);
    const { rules } = view;
    const found = view.recent.filter((connection) => isMeant(connection, meant));
    const { offers, connections: all } = await this.#gather();
    const direct = this.#explainDirect(meant, offers, all);
    if (found.length > 0) {
      const lines = found.flatMap((connection) => {
        const { verdict, checks } = explainConnection(connection, rules);
        const why = this.whyPlain(connection);
        return [...checks.map(lineOf), verdictWords[verdict], ...(why === '' ? [] : [why])];
      });
      return [...lines, ...direct];
    }
    const known = all.filter(({ mode, local, remote, pid }) => mode !== 'direct' && isOneOf(meant, local, remote, pid));
    const accepted = this.#explainAccepted(meant);
    if (known.length + accepted.length + direct.length === 0)
      return [`no connection ${which} is known here; millrace conn lists the known ones`];
    const lines = known.map(({ local, remote, mode, reason, peer, wire }) =>
      mode === 'carried'
        ? `${local} -> ${remote}: carried to ${peer} over ${wire}`
        : `${local} -> ${remote}: ${mode}${reason === '' ? '' : `: ${reason}`}`,
    );
    return [...lines, ...accepted, ...direct];
  }

  /** Of connections of programs that have the library. */
  #explainDirect(
    which: Which,
    offers: readonly OfferReport[],
    connections: readonly ConnectionStatus[],
  ): readonly string[] {
    const { peers, direct } = this.#parts;
    const meant = offers.filter(({ local, remote, pid }) => isOneOf(which, local, remote, pid));
    if (meant.length > 0) return meant.map((offer) => explainOffer(offer, { peers, connections }));
    if (!('pid' in which) || direct?.hasProgram(which.pid) !== true) return [];
    return [`process ${which.pid} has the library, and offers none of its connections now`];
  }

  #explainPeer({ peer, server }: PeerAndServer): string {
    const { peers, listeners } = this.#parts;
    if (peers.get(peer) !== undefined) return listeners.explain(peer, formatIpEndpoint(parseIpEndpoint(server)));
    const names = peers.all.map(({ name }) => name);
    throw new UsageError(`explain '${peer}->${server}': no peer is called '${peer}'${didYouMean(peer, names)}`);
  }

  /** Of a connection from a peer's host to this one. */
  #explainAccepted(which: Which): readonly string[] {
    const { peers, listeners } = this.#parts;
    const peer = 'pid' in which ? undefined : peers.ownerOf(which.source);
    return 'pid' in which || peer === undefined ? [] : [listeners.explain(peer, which.destination)];
  }
}

function sum(reports: readonly LaneReport[]): Counters {
  const total = (key: keyof Counters): number => reports.reduce((all, report) => all + report[key], 0);
  return {
    opened: total('opened'),
    accepted: total('accepted'),
    refused: total('refused'),
    resets: total('resets'),
    unsteered: total('unsteered'),
    bytesOut: total('bytesOut'),
    bytesIn: total('bytesIn'),
  };
}

function lineOf({ question, answer, isDecisive }: Check): string {
  return `${isDecisive ? '=>' : '  '} ${question} ${answer}`;
}

/** A peer by its name, and an endpoint of this host in text. */
interface PeerAndServer {
  readonly peer: string;
  readonly server: string;
}

function parseWhich(which: string): Which | PeerAndServer {
  if (/^\d+$/.test(which)) return { pid: Number(which) };
  const [source, destination, ...rest] = which.split('->');
  if (source !== undefined && destination !== undefined && rest.length === 0) {
    return isNodeName(source) ? { peer: source, server: destination } : { source, destination };
  }
  throw new UsageError(`explain '${which}': give a process id, ADDR:PORT->ADDR:PORT or PEER->ADDR:PORT`);
}

function isOneOf(which: Which, local: string, remote: string, pid: number): boolean {
  if ('pid' in which) return pid === which.pid;
  const isThere = local === which.source && remote === which.destination;
  return isThere || (local === which.destination && remote === which.source);
}
