// The set-up of a row of proxy.*: two hosts, a load on every path, and the entrants that take
// turns.

import { Lab } from '../../src/lab/index.ts';
import { type LoadOptions, peerLoad, type StartLoad } from './proxy-loads.ts';
import { type ProxyPath, ProxyWorld, type Wire } from './proxy-world.ts';
import { type Contest, contestOf, type Entrant, longEnough } from './row.ts';
import { prepareVerbs } from './verbs.ts';

const WARM_MS = 4000;

export type ProxyRival = Exclude<ProxyPath, 'carried'>;

/**
 * Raw writes of our device; `perMs`: about how many take 1 ms. Each covers more memory than the
 * caches have, as in the other rows that compare with the raw wire: repeated writes of 4 MiB ran at
 * 40 GB/s, from the cache, and of 64 MiB at 9 GB/s, from memory.
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
  // Runs without measuring, so that all pages are mapped and V8 has compiled the daemons' code, as
  // in daemons that run for long.
  const warmMs = performance.now() + longEnough(options.roundMs, WARM_MS);
  do await ours(signal);
  while (performance.now() < warmMs);
  for (const each of Object.values(against)) await each(signal);
  return contestOf(undo, ours, against);
}

/**
 * One carried stream, next to two processes that only write. They have a lab of their own, since
 * RoCEv2 has one port.
 */
export async function prepareRaw(wire: Wire, options: LoadOptions): Promise<Contest> {
  const { roundMs, signal } = options;
  await using undo = new AsyncDisposableStack();
  const carried = undo.use(await prepareProxy(wire, peerLoad('bulk', 1), [], options));
  const lab = undo.use(await Lab.create({ signal }));
  const [client, server] = lab.hosts;
  const { sizeBytes, perMs } = rawWrites;
  const loop = { kind: 'stream', device: `soft-${wire}`, test: 'write-bw', sizeBytes, perMs: perMs[wire] } as const;
  const raw = undo.use(await prepareVerbs(loop, roundMs, signal, { client, server }));
  return contestOf(undo, carried.ours, { raw: raw.ours });
}
