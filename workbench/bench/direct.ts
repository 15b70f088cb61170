// Rows direct.*: programs whose connections are direct, on one host or on two, next to the same
// programs on plain TCP.

import { type DirectRival, prepareDirect } from './direct-contest.ts';
import { killSizes, prepareKill } from './direct-kill.ts';
import { besideBusyLoops, connectsLoad, peerLoad, redisCpuLoad, redisLoad, type StartLoad } from './direct-loads.ts';
import type { DirectWire } from './direct-world.ts';
import type { Row } from './row.ts';

/** Threshold and goal for a rival. */
type Limits = Readonly<Partial<Record<DirectRival, readonly [threshold: number, goal: number]>>>;

interface Kind extends Pick<Row, 'id' | 'what' | 'unit' | 'better'> {
  readonly start: StartLoad;
}

const [trial, quick, full] = killSizes;
const CONNECTS_AT_A_TIME = 16;

function rowOf(kind: Kind, limits: Limits, wire?: DirectWire): Row {
  const { start, ...rest } = kind;
  const by = (index: 0 | 1) => Object.fromEntries(Object.entries(limits).map(([rival, pair]) => [rival, pair[index]]));
  const rivals = Object.keys(limits) as DirectRival[];
  return { ...rest, threshold: by(0), goal: by(1), prepare: prepareDirect({ start, wire, rivals }) };
}

/** Between two hosts. */
function rowOn(wire: DirectWire, kind: Kind, limits: Limits): Row {
  const id = wire === 'shm' ? kind.id : `${kind.id}@${wire}`;
  return rowOf({ ...kind, id, what: `${kind.what}, wire ${wire}` }, limits, wire);
}

function redis(clients: number): Kind {
  return {
    id: `direct.redis.${clients}`,
    what: `redis between two hosts, GET and SET of 2 KiB, ${clients} clients, direct`,
    unit: '1/s',
    better: 'higher',
    start: redisLoad({ clients }),
  };
}

function roundTrip(name: string, sizeBytes: number): Kind {
  return {
    id: `direct.rtt.${name}`,
    what: `round trip of ${sizeBytes} B between two hosts, median, direct`,
    unit: 'us',
    better: 'lower',
    start: peerLoad('rtt', sizeBytes, 1),
  };
}

function bulk(streams: number): Kind {
  return {
    id: `direct.bulk.${streams}`,
    what: `bulk between two hosts, ${streams} stream${streams === 1 ? '' : 's'}, direct`,
    unit: 'MiB/s',
    better: 'higher',
    start: peerLoad('bulk', streams, streams),
  };
}

const pipelined: Kind = {
  ...redis(30),
  id: 'direct.redis.p16',
  what: 'redis between two hosts, GET and SET of 2 KiB, 30 clients, 16 requests at a time, direct',
  start: redisLoad({ clients: 30, pipeline: 16 }),
};

const connects: Kind = {
  id: 'direct.connects',
  what: `connections made, used once and closed between two hosts, ${CONNECTS_AT_A_TIME} at a time, programs with the library`,
  unit: '1/s',
  better: 'higher',
  start: connectsLoad(CONNECTS_AT_A_TIME),
};

const busy: Kind = {
  ...redis(30),
  id: 'direct.busy',
  what: 'redis between two hosts, 30 clients, direct, while two programs that never sleep run beside it',
  start: besideBusyLoops(redisLoad({ clients: 30 })),
};

const cpu: Kind = {
  id: 'direct.cpu',
  what: 'processor time of programs and daemons for 100,000 redis requests, 30 clients, direct',
  unit: 's',
  better: 'lower',
  start: redisCpuLoad,
};

const local: readonly Row[] = [
  rowOf(
    {
      id: 'direct.local.redis',
      what: 'redis on one host, GET and SET of 2 KiB, 30 clients, direct, next to plain loopback',
      unit: '1/s',
      better: 'higher',
      start: redisLoad({ clients: 30 }),
    },
    { plain: [5, 12] },
  ),
  rowOf(
    {
      id: 'direct.local.rtt',
      what: 'round trip of 64 B on one host, median, direct, next to plain loopback',
      unit: 'us',
      better: 'lower',
      start: peerLoad('rtt', 64, 1),
    },
    { plain: [0.3, 0.05] },
  ),
];

export const directRows: readonly Row[] = [
  rowOn('shm', redis(10), { plain: [2, 6], ctl: [1.5, 4] }),
  rowOn('shm', redis(30), { plain: [2.5, 7], ctl: [2, 5] }),
  rowOn('shm', redis(100), { plain: [3, 10], ctl: [2, 6] }),
  rowOn('shm', redis(400), { plain: [3, 10], ctl: [2, 7] }),
  rowOn('shm', pipelined, { plain: [1, 1.8] }),
  rowOn('shm', roundTrip('64', 64), { plain: [0.4, 0.15] }),
  rowOn('shm', roundTrip('2k', 2048), { plain: [0.4, 0.15] }),
  rowOn('shm', bulk(1), { plain: [1.5, 2.5] }),
  rowOn('shm', bulk(4), { plain: [1.5, 2.5] }),
  rowOn('shm', connects, { plain: [0.8, 0.98] }),
  rowOn('shm', busy, { plain: [1.5, 2.5] }),
  rowOn('shm', cpu, { plain: [0.5, 0.15] }),
  {
    id: 'direct.kill',
    what: `ends of connections that broke or read a wrong byte when daemons were killed: ${full}; --quick: ${quick}; --trial: ${trial}`,
    unit: 'ends',
    better: 'lower',
    threshold: 0,
    goal: 0,
    rounds: 1,
    prepare: prepareKill,
  },
  rowOn('tcp', redis(30), { plain: [1.2, 3] }),
  rowOn('tcp', redis(100), { plain: [1.5, 5] }),
  rowOn('tcp', bulk(1), { plain: [0.8, 1] }),
  ...local,
];
