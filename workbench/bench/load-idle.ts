// One stream beside thousands of connections that are open and silent, in turns with the same
// stream alone: the same two daemons carry both.

import { setTimeout as sleep } from 'node:timers/promises';
import { startPeers, touchJob } from './proxy-loads.ts';
import { ProxyWorld } from './proxy-world.ts';
import { type Contest, contestOf, type Entrant, longEnough, type Row } from './row.ts';

const IDLE_CONNECTIONS = 10_000;
const LEAST_ROUND_MS = 500;
/** By then idle streams have given back the credit that a busy one may use. */
const SETTLE_MS = 2500;
const POLL_MS = 50;

export async function prepareIdleBeside({ roundMs, signal }: Parameters<Row['prepare']>[0]): Promise<Contest> {
  await using undo = new AsyncDisposableStack();
  const world = undo.use(await ProxyWorld.create({ wire: 'shm', signal }));
  const peers = undo.use(await startPeers(world, signal));
  const address = world.addressOf('carried');
  await world.carrying(() => peers.run(touchJob, address, signal), signal);
  let idle = 0;
  /** Entrants take turns in rotating order, so two in a row may need the same number. */
  const setIdle = async (count: number): Promise<void> => {
    if (count === idle) return;
    if (count > 0) await peers.run({ kind: 'idle', amount: count, ms: 0 }, address, signal);
    else await peers.run({ kind: 'drop', amount: 0, ms: 0 }, address, signal);
    idle = count;
    while (!(await hasOpen(world, count))) await sleep(POLL_MS, undefined, { signal });
    if (count > 0) await sleep(longEnough(roundMs, SETTLE_MS), undefined, { signal });
  };
  const bulk = { kind: 'bulk', amount: 1, ms: longEnough(roundMs, LEAST_ROUND_MS) } as const;
  const beside =
    (count: number): Entrant =>
    async () => {
      await setIdle(count);
      return world.measured('carried', () => peers.run(bulk, address, signal));
    };
  return contestOf(undo, beside(IDLE_CONNECTIONS), { alone: beside(0) });
}

async function hasOpen(world: ProxyWorld, count: number): Promise<boolean> {
  const { lanes } = await world.status();
  return lanes.reduce((sum, { connections }) => sum + connections, 0) === count;
}
