// Rates from two looks at a daemon: what moved per second on each peer, link, lane and connection between them.

import type { ConnectionStatus, DaemonStatus, LinkStatus } from '../status/index.ts';

/** What was seen at one moment. */
export interface Look {
  /** Monotonic. */
  readonly atMs: number;
  readonly status: DaemonStatus;
  readonly connections: readonly ConnectionStatus[];
}

interface Flow {
  readonly inPerSecond: number;
  readonly outPerSecond: number;
}

interface LinkFigures extends Flow {
  readonly peer: string;
  readonly link: LinkStatus;
  readonly recordsPerSecond: number;
}

interface ConnectionFigures extends Flow {
  readonly connection: ConnectionStatus;
}

interface LaneFigures {
  readonly index: number;
  readonly connections: number;
  /** Of one core, 0 to 1. */
  readonly cpu: number;
  readonly sleepsPerSecond: number;
  readonly heldBytes: number;
}

export interface TopFigures {
  readonly v: 1;
  readonly seconds: number;
  /** Of one core; several lanes make more than 1. */
  readonly cpu: number;
  readonly total: Flow;
  readonly peers: readonly (Flow & { readonly name: string; readonly state: string })[];
  readonly links: readonly LinkFigures[];
  readonly lanes: readonly LaneFigures[];
  /** Carried ones, the busiest first. */
  readonly connections: readonly ConnectionFigures[];
}

/** Counters that were not there before start at 0; those that went back belong to a new daemon or link, and count from 0, too. */
export function figuresOf(before: Look, now: Look): TopFigures {
  const seconds = Math.max((now.atMs - before.atMs) / 1000, 1e-3);
  const perSecond = (value: number, earlier = 0): number => (value < earlier ? value : value - earlier) / seconds;
  const flow = (value: Bytes, earlier?: Bytes): Flow => ({
    inPerSecond: perSecond(value.bytesIn, earlier?.bytesIn),
    outPerSecond: perSecond(value.bytesOut, earlier?.bytesOut),
  });
  const oldLinks = new Map(
    before.status.peers.flatMap(({ name, links }) => links.map((link) => [linkKey(name, link), link])),
  );
  const oldLanes = new Map(before.status.lanes.map((lane) => [lane.index, lane]));
  const oldConnections = new Map(carried(before).map((connection) => [connectionKey(connection), connection]));
  const links = now.status.peers.flatMap(({ name, links }) =>
    links.map((link) => {
      const old = oldLinks.get(linkKey(name, link));
      const records = perSecond(link.recordsIn + link.recordsOut, (old?.recordsIn ?? 0) + (old?.recordsOut ?? 0));
      return { peer: name, link, recordsPerSecond: records, ...flow(link, old) };
    }),
  );
  return {
    v: 1,
    seconds,
    cpu: perSecond(now.status.cpuSeconds, before.status.cpuSeconds),
    total: flow(now.status.counters, before.status.counters),
    peers: now.status.peers.map(({ name, state }) => ({
      name,
      state,
      ...sum(links.filter(({ peer }) => peer === name)),
    })),
    links,
    lanes: now.status.lanes.map(({ index, connections, heldBytes, cpuSeconds, sleeps }) => ({
      index,
      connections,
      cpu: perSecond(cpuSeconds, oldLanes.get(index)?.cpuSeconds),
      sleepsPerSecond: perSecond(sleeps, oldLanes.get(index)?.sleeps),
      heldBytes,
    })),
    connections: carried(now)
      .map((connection) => ({ connection, ...flow(connection, oldConnections.get(connectionKey(connection))) }))
      .sort((left, right) => busyness(right) - busyness(left)),
  };
}

interface Bytes {
  readonly bytesIn: number;
  readonly bytesOut: number;
}

function carried({ connections }: Look): readonly ConnectionStatus[] {
  return connections.filter(({ mode }) => mode === 'carried');
}

function linkKey(peer: string, { index, lane }: LinkStatus): string {
  return `${peer} ${lane} ${index}`;
}

/** A port is used again; the same one at the same moment is not. */
function connectionKey({ local, remote, direction, sinceMs }: ConnectionStatus): string {
  return `${local} ${remote} ${direction} ${sinceMs}`;
}

function sum(flows: readonly Flow[]): Flow {
  return {
    inPerSecond: flows.reduce((total, flow) => total + flow.inPerSecond, 0),
    outPerSecond: flows.reduce((total, flow) => total + flow.outPerSecond, 0),
  };
}

function busyness({ inPerSecond, outPerSecond }: Flow): number {
  return inPerSecond + outPerSecond;
}
