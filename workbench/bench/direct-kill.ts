// The row direct.kill: daemons are killed and started anew under connections of many behaviours,
// every byte of which is checked.

import { MillraceError } from '../../src/errors.ts';
import type { Host } from '../../src/lab/index.ts';
import { Traffic } from '../soak/index.ts';
import { eventually } from '../worlds/index.ts';
import { DirectWorld } from './direct-world.ts';
import { type Contest, contestOf } from './row.ts';

/** By how long a round should take: the shortest first. */
const sizes = [
  { roundMs: 0, connections: 20, kills: 2 },
  { roundMs: 100, connections: 100, kills: 6 },
  { roundMs: 500, connections: 200, kills: 20 },
] as const;
/** What a trial, a quick run and a full one do. */
export const killSizes = sizes.map(({ connections, kills }) => `${connections} connections and ${kills} kills`);
const PORT = 7100;

export async function prepareKill(options: {
  readonly roundMs: number;
  readonly signal: AbortSignal;
}): Promise<Contest> {
  const { roundMs, signal } = options;
  const size = sizes.findLast((each) => each.roundMs <= roundMs) ?? sizes[0];
  await using undo = new AsyncDisposableStack();
  const world = undo.use(await DirectWorld.create({ wire: 'shm', signal }));
  return contestOf(undo, () => brokenEnds(world, size, signal));
}

/** Ends of connections that were reset, stuck, or read a wrong byte. */
async function brokenEnds(
  world: DirectWorld,
  { connections, kills }: (typeof sizes)[number],
  signal: AbortSignal,
): Promise<number> {
  const { client, server } = world.hosts.direct;
  await using undo = new AsyncDisposableStack();
  const start = async (host: Host, other: Host, seed: number): Promise<Traffic> => {
    const targets = [other.ipv4, other.ipv6] as const;
    const traffic = undo.use(await Traffic.start(host, { port: PORT, targets, connections: connections / 2, seed }));
    // Whoever waits for it hears that it has ended.
    const end = (): void => void traffic[Symbol.asyncDispose]();
    signal.addEventListener('abort', end, { once: true });
    undo.defer(() => signal.removeEventListener('abort', end));
    return traffic;
  };
  try {
    const both = [await start(client, server, 1), await start(server, client, 2)];
    for (const traffic of both) traffic.start();
    for (let kill = 0; kill < kills; kill++) {
      const which = kill % 2 === 0 ? 'client' : 'server';
      await eventually(`connections of the ${which}'s host are direct`, async () => {
        signal.throwIfAborted();
        return (await world.status(which)).mirrored >= connections / 10;
      });
      await world.kill(which);
    }
    await Promise.all(both.map((traffic) => traffic.stop()));
    let exact = 0;
    for (const traffic of both) {
      for (const row of Object.values(await traffic.totals())) exact += row.exact;
    }
    if (exact > 0) return both.reduce((sum, { outcomes }) => sum + outcomes.length, 0);
  } catch (error) {
    signal.throwIfAborted();
    throw error;
  }
  throw new MillraceError('MILLRACE_ERR_FAILED', 'measure direct connections: none was open while daemons were killed');
}
