// Rows proxy.*: programs on two hosts whose connections daemons carry, next to plain TCP and to a
// haproxy pair.

import { type ProxyRival, prepareProxy, prepareRaw } from './proxy-contest.ts';
import { cpuLoad, peerLoad, type StartLoad } from './proxy-loads.ts';
import { redisLoad, scaleLoad } from './proxy-redis.ts';
import { prepareIdle, prepareSlow } from './proxy-rest.ts';
import { type Wire, wires } from './proxy-world.ts';
import type { Row } from './row.ts';

/** A row for any wire. */
interface Kind extends Omit<Row, 'prepare'> {
  readonly prepare: (wire: Wire) => Row['prepare'];
}

const CONNECTS_AT_A_TIME = 16;
const clientCounts = [10, 30, 40, 100, 400] as const;
const both = ['plain', 'haproxy'] as const;

function measured(start: StartLoad, rivals: readonly ProxyRival[] = both): Kind['prepare'] {
  return (wire) => (options) => prepareProxy(wire, start, rivals, options);
}

/** Threshold and goal for both rivals. */
function limits(haproxy: readonly [number, number], plain: readonly [number, number]): Pick<Row, 'threshold' | 'goal'> {
  return { threshold: { plain: plain[0], haproxy: haproxy[0] }, goal: { plain: plain[1], haproxy: haproxy[1] } };
}

function plainLimits(threshold: number, goal: number): Pick<Row, 'threshold' | 'goal'> {
  return { threshold: { plain: threshold }, goal: { plain: goal } };
}

function bulk(streams: number): Kind {
  return {
    id: `proxy.bulk.${streams}`,
    what: `bulk between two hosts, ${streams} stream${streams === 1 ? '' : 's'}`,
    unit: 'MiB/s',
    better: 'higher',
    ...limits([1.5, 3], [0.8, 1.2]),
    prepare: measured(peerLoad('bulk', streams)),
  };
}

function redis(clients: number): Kind {
  return {
    id: `proxy.redis.${clients}`,
    what: `redis between two hosts, GET and SET of 2 KiB, ${clients} clients`,
    unit: '1/s',
    better: 'higher',
    ...limits([1.2, 2.5], [0.5, 1]),
    prepare: measured(redisLoad(clients)),
  };
}

function roundTrip(name: string, sizeBytes: number): Kind {
  return {
    id: `proxy.rtt.${name}`,
    what: `round trip of ${sizeBytes} B between two hosts, median`,
    unit: 'us',
    better: 'lower',
    ...limits([0.8, 0.4], [2.5, 1]),
    prepare: measured(peerLoad('rtt', sizeBytes)),
  };
}

const [few, many] = [Math.min(...clientCounts), Math.max(...clientCounts)];
const kinds: readonly Kind[] = [
  bulk(1),
  bulk(4),
  ...clientCounts.map(redis),
  {
    id: 'proxy.scale',
    what: `redis: the ratio to plain TCP with ${many} clients over that with ${few}`,
    unit: 'x',
    better: 'higher',
    threshold: 0.8,
    goal: 1,
    prepare: measured(scaleLoad(few, many), []),
  },
  roundTrip('64', 64),
  roundTrip('2k', 2048),
  {
    id: 'proxy.cpu',
    what: 'processor time of daemons and programs for a GB of one stream',
    unit: 's/GB',
    better: 'lower',
    ...plainLimits(3, 1.5),
    prepare: measured(cpuLoad),
  },
  {
    id: 'proxy.idle',
    what: 'share of a core that the busier daemon uses with 100 idle connections',
    unit: 'cores',
    better: 'lower',
    threshold: 0.01,
    goal: 0.001,
    prepare: (wire) => prepareIdle(wire, 'carried'),
  },
  {
    id: 'proxy.slow',
    what: 'MiB held by kernels and daemons when the receiver stops and 1000 MiB are offered',
    unit: 'MiB',
    better: 'lower',
    threshold: 32,
    goal: 8,
    prepare: (wire) => prepareSlow(wire, 'carried'),
  },
  {
    id: 'proxy.connects',
    what: `connections made, used once and closed between two hosts, ${CONNECTS_AT_A_TIME} at a time`,
    unit: '1/s',
    better: 'higher',
    ...plainLimits(0.3, 0.8),
    prepare: measured(peerLoad('connects', CONNECTS_AT_A_TIME)),
  },
  {
    id: 'proxy.raw',
    what: 'one carried stream, next to writes of 64 MiB on the same wire',
    unit: 'MiB/s',
    better: 'higher',
    threshold: { raw: 0.1 },
    goal: { raw: 0.3 },
    prepare: (wire) => (options) => prepareRaw(wire, options),
  },
];

/** Thresholds and goals hold on `shm`; rows on other wires have none. */
function rowOn(wire: Wire, { prepare, threshold, goal, ...kind }: Kind): Row {
  const isDefault = wire === 'shm';
  return {
    ...kind,
    id: isDefault ? kind.id : `${kind.id}@${wire}`,
    what: `${kind.what}, wire ${wire}`,
    ...(isDefault && { threshold, goal }),
    prepare: prepare(wire),
  };
}

/** The rivals at rest have rows of their own, since the figures of ours are absolute there. */
const restRows: readonly Row[] = [
  {
    id: 'proxy.idle.haproxy',
    what: 'share of a core that the busier haproxy uses with 100 idle connections',
    unit: 'cores',
    better: 'lower',
    prepare: prepareIdle('shm', 'haproxy'),
  },
  ...both.map(
    (path): Row => ({
      id: `proxy.slow.${path}`,
      what: `MiB held by ${path === 'plain' ? 'plain TCP' : 'a haproxy pair'} when the receiver stops and 1000 MiB are offered`,
      unit: 'MiB',
      better: 'lower',
      prepare: prepareSlow('shm', path),
    }),
  ),
];

export const proxyRows: readonly Row[] = [
  ...wires.flatMap((wire) => kinds.map((kind) => rowOn(wire, kind))),
  ...restRows,
];
