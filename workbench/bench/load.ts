// Rows load.*: what a daemon costs, what many connections cost the one that is busy, and what many
// peers cost, whom one process plays with the real control protocol (workbench/scale).

import { setTimeout as sleep } from 'node:timers/promises';
import { ALONE_MS, addedBytes, PeersWorld, startPeers, timeToPeers } from '../scale/index.ts';
import { prepareIdleBeside } from './load-idle.ts';
import { prepareResident } from './load-resident.ts';
import { contestOf, longEnough, type Row } from './row.ts';

const PEERS = 1000;
const TRIAL_PEERS = 20;
const ENDPOINTS_EACH = { peers: 10, announce: 100 } as const;
const FIRST_PORT = 7000;
const MIB = 1024 * 1024;

/** In a trial fewer are enough. */
function peersFor(roundMs: number): number {
  return longEnough(roundMs, 100) < 100 ? TRIAL_PEERS : PEERS;
}

export const loadRows: readonly Row[] = [
  {
    id: 'load.peers',
    what: `MiB that ${PEERS} idle peers, which announce ${ENDPOINTS_EACH.peers} endpoints each, add to a daemon`,
    unit: 'MiB',
    better: 'lower',
    threshold: 96,
    goal: 16,
    // Each is a daemon of its own.
    rounds: 2,
    prepare: async ({ roundMs }) => {
      const peers = peersFor(roundMs);
      const ours = async (signal: AbortSignal): Promise<number> =>
        (await addedBytes({ peers, dialed: 0, endpointsEach: ENDPOINTS_EACH.peers, signal })) / MIB;
      return contestOf(new AsyncDisposableStack(), ours);
    },
  },
  {
    id: 'load.announce',
    what: `ms until a new listener is known at the last of ${PEERS} peers, which announce ${ENDPOINTS_EACH.announce} endpoints each`,
    unit: 'ms',
    better: 'lower',
    threshold: 1000,
    goal: 100,
    prepare: async ({ roundMs, signal }) => {
      await using undo = new AsyncDisposableStack();
      const options = { peers: peersFor(roundMs), dialed: 0, endpointsEach: ENDPOINTS_EACH.announce, signal };
      const world = undo.use(await PeersWorld.create(options));
      await startPeers(world);
      let port = FIRST_PORT;
      return contestOf(undo, async () => {
        await sleep(longEnough(roundMs, ALONE_MS), undefined, { signal });
        return (await timeToPeers(world, port++)).lastMs;
      });
    },
  },
  {
    id: 'load.rss',
    what: 'MiB resident, a daemon without peers, of the command as JavaScript in a few files',
    unit: 'MiB',
    better: 'lower',
    threshold: 110,
    goal: 70,
    rounds: 3,
    prepare: prepareResident,
  },
  {
    id: 'load.idle10k',
    what: 'one carried stream beside 10,000 idle connections, next to the same stream alone, wire shm',
    unit: 'MiB/s',
    better: 'higher',
    threshold: { alone: 0.9 },
    goal: { alone: 0.98 },
    prepare: prepareIdleBeside,
  },
];
