// Rates between two samples of a daemon: what moved per second on each peer, link, lane and
// connection.

import type { ConnectionStatus, DaemonStatus, LinkStatus } from '../status/index.ts';

/** The status and connections of a daemon at one moment. */
export interface Sample {
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
  /** Those whose bytes are counted: carried and mirrored ones, the busiest first. */
  readonly connections: readonly ConnectionFigures[];
}

/**
 * A counter that is new, or smaller than before because of a restart, is taken to have started from
 * 0.
 */
export function figuresOf(before: Sample, now: Sample): TopFigures {
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
  const oldConnections = new Map(counted(before).map((connection) => [connectionKey(connection), connection]));
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
    connections: counted(now)
      .map((connection) => ({ connection, ...flow(connection, oldConnections.get(connectionKey(connection))) }))
      .sort((left, right) => busyness(right) - busyness(left)),
  };
}

interface Bytes {
  readonly bytesIn: number;
  readonly bytesOut: number;
}

type CountedConnection = ConnectionStatus & Bytes;

function counted({ connections }: Sample): readonly CountedConnection[] {
  return connections.filter((one): one is CountedConnection => {
    return (one.mode === 'carried' || one.mode === 'direct') && one.bytesIn !== null && one.bytesOut !== null;
  });
}

function linkKey(peer: string, { index, lane }: LinkStatus): string {
  return `${peer} ${lane} ${index}`;
}

/** A port may be used again, but not with the same start time. */
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
