// How a row of proxy.* is set up: the two hosts, a load on every path, and the entrants that take turns.

import { Lab } from '../../src/lab/index.ts';
import { type LoadOptions, peerLoad, type StartLoad } from './proxy-loads.ts';
import { type ProxyPath, ProxyWorld, type Wire } from './proxy-world.ts';
import type { Contest, Entrant } from './row.ts';
import { prepareVerbs } from './verbs.ts';

const WARM_MS = 4000;

export type ProxyRival = Exclude<ProxyPath, 'carried'>;

/**
 * Our device's raw writes, about how many in a ms. Each covers more memory than the caches hold, as in the other rows that compare with the
 * raw wire: 4 MiB again and again run at 40 GB/s here, out of the cache, and 64 MiB at the 9 GB/s that memory has.
 */
const rawWrites = { sizeBytes: 64 * 1024 * 1024, perMs: { shm: 0.12, roce: 0.015, tcp: 0.015 } } as const;

export async function prepareProxy(
  wire: Wire,
  start: StartLoad,
  rivals: readonly ProxyRival[],
  options: LoadOptions,
): Promise<Contest> {
  const { signal } = options;
  await using undo = new AsyncDisposableStack();
  const world = undo.use(await ProxyWorld.create({ wire, signal }));
  const load = undo.use(await start(world, options));
  await world.carrying(() => load.connect('carried'), signal);
  const entrant = (path: ProxyPath): Entrant => {
    return () => world.measured(path, () => load.measure(path));
  };
  const ours = entrant('carried');
  const against: Partial<Record<ProxyRival, Entrant>> = {};
  for (const rival of rivals) against[rival] = entrant(rival);
  // Unmeasured, so that every page is there and V8 has compiled what a daemon that runs for months has compiled.
  const warmMs = performance.now() + WARM_MS;
  do await ours(signal);
  while (performance.now() < warmMs);
  for (const each of Object.values(against)) await each(signal);
  const kept = undo.move();
  return { ours, against, [Symbol.asyncDispose]: () => kept.disposeAsync() };
}

/** One carried stream, next to writes by two processes that only write. Those have a lab of their own: RoCEv2 has one port. */
export async function prepareRaw(wire: Wire, options: LoadOptions): Promise<Contest> {
  const { roundMs, signal } = options;
  await using undo = new AsyncDisposableStack();
  const carried = undo.use(await prepareProxy(wire, peerLoad('bulk', 1), [], options));
  const lab = undo.use(await Lab.create({ signal }));
  const [client, server] = lab.hosts;
  const { sizeBytes, perMs } = rawWrites;
  const loop = { kind: 'stream', device: `soft-${wire}`, test: 'write-bw', sizeBytes, perMs: perMs[wire] } as const;
  const raw = undo.use(await prepareVerbs(loop, roundMs, signal, { client, server }));
  const kept = undo.move();
  return { ours: carried.ours, against: { raw: raw.ours }, [Symbol.asyncDispose]: () => kept.disposeAsync() };
}
