// Inflicts the planned faults on a world, and reports when.

import { setTimeout as rest } from 'node:timers/promises';
import type { Fault, PlannedFault } from './plan.ts';
import type { SoakWorld } from './world.ts';

/** Repairs what it broke before it ends, even when `signal` stops it. */
export async function inflict(
  world: SoakWorld,
  planned: PlannedFault,
  signal: AbortSignal,
): Promise<Omit<Fault, 'metMs'>> {
  const { kind, host } = planned;
  const startMs = Date.now();
  await actions[kind](world, planned, signal);
  return { kind, host: kind === 'etcd restarted' ? 'store' : host, startMs, endMs: Date.now() };
}

type Action = (world: SoakWorld, planned: PlannedFault, signal: AbortSignal) => Promise<void>;

async function pauseFor(
  who: { signal(name: NodeJS.Signals): void },
  durationMs: number,
  signal: AbortSignal,
): Promise<void> {
  who.signal('SIGSTOP');
  try {
    await rest(durationMs, undefined, { signal });
  } finally {
    who.signal('SIGCONT');
  }
}

const pause: Action = (world, { host, durationMs }, signal) => pauseFor(world.daemon(host), durationMs, signal);

const actions: Readonly<Record<PlannedFault['kind'], Action>> = {
  'wire cut': async (world, { host, durationMs }, signal) => {
    await world.setWire(host, 'down');
    try {
      await rest(durationMs, undefined, { signal });
    } finally {
      await world.setWire(host, 'up');
    }
  },
  'QPs killed': async (world, { host }, signal) => {
    await world.daemon(host).api.breakLinks(world.peerOf(host), { signal });
  },
  'daemon paused': pause,
  'daemon paused long': pause,
  'daemon killed': async (world, { host, durationMs }, signal) => {
    await world.killDaemon(host);
    await rest(durationMs, undefined, { signal });
    await world.startDaemon(host);
  },
  'daemon restarted': async (world, { host }) => {
    const code = await world.stopDaemon(host);
    if (code !== 0) world.log.unexpected.push(`daemon ${host} ended with status ${code} on SIGTERM`);
    await world.startDaemon(host);
  },
  'control cut': (world, { host }) => world.cutControl(host),
  'program paused': async (world, { host, durationMs }, signal) => {
    for (const program of world.programs(host)) await pauseFor(program, durationMs, signal);
  },
  'program killed': async (world, { host }) => {
    await world.victims?.kill(host);
  },
  'etcd restarted': async (world, { durationMs }, signal) => {
    await world.etcd.stop();
    await rest(durationMs, undefined, { signal });
    await world.etcd.resume();
  },
};
