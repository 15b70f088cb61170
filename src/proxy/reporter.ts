// What the daemon tells of itself: gathers from its parts what src/status/daemon-status.ts describes.

import type { Config } from '../config/index.ts';
import { UsageError } from '../errors.ts';
import type { LaneReport, LaneThread } from '../lane/index.ts';
import type { PeerDirectory } from '../peers/index.ts';
import type { ConnectionStatus, DaemonStatus, LinkStatus, PeerStatus } from '../status/index.ts';
import {
  type Check,
  explainConnection,
  formatIpEndpoint,
  isMeant,
  type Steering,
  SteeringView,
  verdictWords,
  type Which,
} from '../steering/index.ts';
import { packageVersion } from '../system/index.ts';
import type { ControlPlane } from './control/index.ts';
import type { PeerBook } from './peer-book.ts';
import type { PlainLog } from './plain-log.ts';

export interface ReporterParts {
  readonly config: Config;
  readonly steering: Steering;
  readonly lanes: readonly LaneThread[];
  readonly control: ControlPlane;
  readonly book: PeerBook;
  readonly plain: PlainLog;
  readonly directory: PeerDirectory;
}

type Counters = DaemonStatus['counters'];

export class DaemonReporter {
  config: Config;
  state: DaemonStatus['state'] = 'starting';
  readonly #parts: ReporterParts;
  readonly #startedMs = Date.now();

  constructor(parts: ReporterParts) {
    this.#parts = parts;
    this.config = parts.config;
  }

  /** Why it is not ready; empty when it is. */
  get notReady(): readonly string[] {
    const { directory } = this.#parts;
    const reasons: string[] = [];
    if (this.state === 'starting') reasons.push('it is starting');
    if (this.state === 'draining') reasons.push('it is draining');
    if (directory.problem !== '' && directory.peers.length === 0) reasons.push(directory.problem);
    return reasons;
  }

  async status(): Promise<DaemonStatus> {
    const { steering, lanes } = this.#parts;
    const { config } = this;
    const reports = (await Promise.all(lanes.map((lane) => lane.report()))).filter((report) => report !== undefined);
    const peers = this.#peers(reports);
    const { user, system } = process.cpuUsage();
    return {
      v: 1,
      node: config.node,
      instance: config.instance,
      version: packageVersion(),
      pid: process.pid,
      startedMs: this.#startedMs,
      state: this.state,
      notReady: this.notReady,
      cgroup: steering.cgroup,
      rules: config.rules,
      peers,
      lanes: reports.map(({ lane }) => lane),
      verdicts: steering.counters(),
      counters: sum(reports),
      memory: {
        rssBytes: process.memoryUsage.rss(),
        heldBytes: reports.reduce((bytes, { lane }) => bytes + lane.heldBytes, 0),
        budgetBytes: config.channel.memoryBytes,
      },
      cpuSeconds: (user + system) / 1e6,
    };
  }

  async connections(): Promise<readonly ConnectionStatus[]> {
    const carried = await Promise.all(this.#parts.lanes.map((lane) => lane.connections()));
    return [...carried.flat(), ...this.#parts.plain.recent];
  }

  /** Why a destination that a rule is about was not announced, as far as the daemon knows. */
  whyNotAnnounced(remote: string): string {
    const host = remote.replace(/:\d+$/, '').replace(/^\[|\]$/g, '');
    const { control, book } = this.#parts;
    const view = control.peers().find(({ peer }) => peer.host === host);
    if (view === undefined) return '';
    const { name } = view.peer;
    const { state, reason } = book.stateOf(name, view);
    if (state === 'up') return `peer ${name} does not listen there`;
    return `peer ${name} is ${state}${reason === '' ? '' : `: ${reason}`}`;
  }

  async explain(which: string): Promise<readonly string[]> {
    const meant = parseWhich(which);
    using view = new SteeringView(this.config.instance);
    const { rules } = view;
    const found = view.recent.filter((connection) => isMeant(connection, meant));
    if (found.length > 0) {
      return found.flatMap((connection) => {
        const { verdict, checks } = explainConnection(connection, rules);
        const why = verdict === 'notAnnounced' ? this.whyNotAnnounced(formatIpEndpoint(connection.original)) : '';
        return [...checks.map(lineOf), verdictWords[verdict], ...(why === '' ? [] : [why])];
      });
    }
    const all = await this.connections();
    const known = all.filter(({ local, remote, pid }) => isOneOf(meant, local, remote, pid));
    if (known.length === 0) return [`no connection ${which} is known here; millrace conn lists those that are`];
    return known.map(({ local, remote, mode, reason, peer, wire }) =>
      mode === 'carried'
        ? `${local} -> ${remote}: carried to ${peer} over ${wire}`
        : `${local} -> ${remote}: ${mode}${reason === '' ? '' : `: ${reason}`}`,
    );
  }

  #peers(reports: readonly LaneReport[]): readonly PeerStatus[] {
    const { control, book } = this.#parts;
    const links = reports.flatMap((report) => report.links);
    return control.peers().map((view) => {
      const { name, host, port, source } = view.peer;
      const own: LinkStatus[] = links.filter(({ peer }) => peer === name);
      return {
        name,
        address: host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`,
        source,
        ...book.stateOf(name, view),
        isSecure: view.isSecure,
        listeners: book.listenersOf(name),
        links: own.sort((left, right) => left.index - right.index),
      };
    });
  }
}

function sum(reports: readonly LaneReport[]): Counters {
  const total = (key: keyof Counters): number => reports.reduce((all, report) => all + report[key], 0);
  return {
    opened: total('opened'),
    accepted: total('accepted'),
    refused: total('refused'),
    resets: total('resets'),
    strangers: total('strangers'),
    bytesOut: total('bytesOut'),
    bytesIn: total('bytesIn'),
  };
}

function lineOf({ question, answer, isDecisive }: Check): string {
  return `${isDecisive ? '=>' : '  '} ${question} ${answer}`;
}

function parseWhich(which: string): Which {
  if (/^\d+$/.test(which)) return { pid: Number(which) };
  const [source, destination, ...rest] = which.split('->');
  if (source !== undefined && destination !== undefined && rest.length === 0) return { source, destination };
  throw new UsageError(`explain '${which}': expected a process number or ADDR:PORT->ADDR:PORT`);
}

function isOneOf(which: Which, local: string, remote: string, pid: number): boolean {
  if ('pid' in which) return pid === which.pid;
  const isThere = local === which.source && remote === which.destination;
  return isThere || (local === which.destination && remote === which.source);
}
