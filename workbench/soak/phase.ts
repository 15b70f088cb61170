// One phase of a soak: daemons on one wire, traffic between them, faults, and a check of what is
// left afterwards.

import { setTimeout as rest } from 'node:timers/promises';
import { MillraceError } from '../../src/errors.ts';
import type { Outcome } from './conversation.ts';
import { inflict } from './inflict.ts';
import { type Bounds, complaint, directComplaint, mayReset } from './judge.ts';
import type { Fault, HostName, PlannedFault } from './plan.ts';
import { Traffic } from './traffic.ts';
import { addTotals, newTotals, type TrafficTotals } from './traffic-protocol.ts';
import { Victims } from './victims.ts';
import { leaks, type Vitals, vitalsOf } from './vitals.ts';
import { channelSettings, type SoakWorld } from './world.ts';

export type Wire = 'shm' | 'roce' | 'tcp';

interface PhaseOptions {
  readonly wire: Wire;
  readonly seed: number;
  readonly plan: Iterator<PlannedFault, unknown>;
  /** The phase lasts longer if this many faults need more time. */
  readonly leastFaults: number;
  readonly seconds: number;
  /** The time of traffic before the first fault, and after the last. */
  readonly calmMs: number;
  readonly connections: number;
  readonly signal: AbortSignal;
  readonly onFault: (fault: Fault) => void;
}

export interface PhaseReport {
  readonly wire: Wire;
  readonly seed: number;
  readonly seconds: number;
  readonly faults: readonly Fault[];
  readonly traffic: TrafficTotals;
  readonly daemons: readonly { readonly before: Vitals; readonly after: Vitals }[];
  /** Counted by the last daemons; the counts of earlier ones are lost. */
  readonly carried: number;
  readonly promoted: number;
  readonly recoveries: number;
  /** Empty when everything held. */
  readonly failures: readonly string[];
}

const PORT = 7400;
const VICTIM_PORT = 7401;
/** Of so many connections, programs that are killed keep one more at each host. */
const VICTIM_SHARE = 20;
const LOOK_MS = 100;
/** How long the daemons may take to connect, and to free what they hold, on a busy machine. */
const PATIENCE_MS = 60_000;
const bounds: Bounds = {
  // Includes the time in which streams of a dead daemon still deliver their bytes.
  lateMs: 15_000,
  tooLongMs: channelSettings.recoverySeconds * 800,
};
/** How long the daemons must be quiet before the traffic starts. */
const SETTLED_MS = 1000;
/** The probability with which each packet of soft-roce is lost. */
const LOSS = 0.01;
const names: readonly HostName[] = ['a', 'b'];

export async function runPhase(world: SoakWorld, options: PhaseOptions): Promise<PhaseReport> {
  const { wire, seed, signal } = options;
  const startMs = Date.now();
  await using undo = new AsyncDisposableStack();
  world.devices = [`soft-${wire}`];
  world.deviceFaults = wire === 'roce' ? { seed, drop: LOSS } : undefined;
  const traffic = await Promise.all(names.map(async (name) => undo.use(await startTraffic(world, name, options))));
  world.traffic = traffic;
  if (world.isDirect) world.victims = undo.use(await Victims.begin(names, (name) => startVictim(world, name, options)));
  await Promise.all(names.map((name) => world.startDaemon(name)));
  const { isTrue: haveSettled, vitals: before } = await vitalsWhen(world, hasSettled(), signal);
  if (!haveSettled)
    throw new MillraceError('MILLRACE_ERR_FAILED', 'start a phase: the daemons do not connect and come to rest');

  for (const each of traffic) each.start();
  world.victims?.start();
  const { faults, failures } = await breakThings(world, options);
  await world.victims?.[Symbol.asyncDispose]();
  await Promise.all(traffic.map((each) => each.stop()));
  const totals = newTotals();
  for (const each of traffic) addTotals(totals, await each.totals());
  const after = await untilQuiet(world, before, signal);

  const outcomes = traffic.flatMap((each) => each.outcomes);
  const judge = (one: Outcome): string | null =>
    world.isDirect ? directComplaint(one, faults) : complaint(one, faults, bounds);
  const complaints = outcomes.map(judge);
  failures.push(...complaints.filter((text) => text !== null), ...(world.victims?.complaints ?? []));
  const daemons = before.map((one) => ({ before: one, after: after.find(({ host }) => host === one.host) ?? one }));
  for (const { before: old, after: now } of daemons) failures.push(...leaks(old, now));
  const carried = after.reduce((sum, vitals) => sum + vitals.carried, 0);
  const promoted = after.reduce((sum, vitals) => sum + vitals.promoted, 0);
  const [moved, how] = world.isDirect ? [promoted, 'direct'] : [carried, 'carried'];
  if (moved === 0) failures.push(`nothing was ${how} after the last fault`);
  await stopDaemons(world, failures);
  const recoveries = after.reduce((sum, vitals) => sum + vitals.recoveries, 0);
  const seconds = (Date.now() - startMs) / 1000;
  return { wire, seed, seconds, faults, traffic: totals, daemons, carried, promoted, recoveries, failures };
}

function startTraffic(world: SoakWorld, name: HostName, { connections, seed }: PhaseOptions): Promise<Traffic> {
  const { ipv4, ipv6 } = world.host(world.peerOf(name));
  const own = seed + names.indexOf(name);
  return Traffic.start(world.programHost(name), {
    port: PORT,
    targets: [ipv4, ipv6],
    connections: connections / 2,
    seed: own,
  });
}

function startVictim(world: SoakWorld, name: HostName, { connections, seed }: PhaseOptions): Promise<Traffic> {
  const { ipv4, ipv6 } = world.host(world.peerOf(name));
  const targets = [ipv4, ipv6] as const;
  const few = Math.ceil(connections / VICTIM_SHARE);
  return Traffic.start(world.programHost(name), { port: VICTIM_PORT, targets, connections: few, seed: ~seed >>> 0 });
}

async function breakThings(world: SoakWorld, options: PhaseOptions): Promise<{ faults: Fault[]; failures: string[] }> {
  const { wire, plan, leastFaults, seconds, calmMs, signal, onFault } = options;
  const faults: Fault[] = [];
  const failures: string[] = [];
  const note = (fault: Fault): void => {
    faults.push(fault);
    onFault(fault);
  };
  await rest(calmMs, undefined, { signal });
  const startMs = Date.now();
  const endMs = startMs + seconds * 1000;
  if (wire === 'roce') note({ kind: 'packet loss', host: 'a, b', startMs, endMs, metMs: startMs });
  for (let count = 0; count < leastFaults || Date.now() < endMs; count++) {
    const { value: planned, done } = plan.next();
    if (done === true) break;
    const fault = await inflict(world, planned, signal);
    const isAwaited = planned.isAwaited || mayReset(fault, bounds);
    const haveTheyMet = !isAwaited || (await haveMet(world, signal));
    note({ ...fault, metMs: isAwaited ? Date.now() : fault.endMs });
    if (!haveTheyMet) failures.push(`the daemons did not meet again after '${planned.kind}' of ${planned.host}`);
    if (!haveTheyMet) return { faults, failures };
    await rest(planned.restMs, undefined, { signal });
  }
  // From here on new connections must be carried again.
  if (!(await haveMet(world, signal))) failures.push('the daemons did not meet in the end');
  await rest(calmMs, undefined, { signal });
  return { faults, failures };
}

async function haveMet(world: SoakWorld, signal: AbortSignal): Promise<boolean> {
  return (await vitalsWhen(world, (all) => all.every(({ isUp }) => isUp), signal)).isTrue;
}

/**
 * After they have met, daemons still open connections to each other: they have settled after a
 * while without new ones.
 */
function hasSettled(): (all: readonly Vitals[]) => boolean {
  let most = 0;
  let sinceMs = performance.now();
  return (all) => {
    const held = all.reduce((sum, { fds }) => sum + fds, 0);
    if (held > most || all.some(({ isUp }) => !isUp)) sinceMs = performance.now();
    most = Math.max(most, held);
    return performance.now() - sinceMs > SETTLED_MS;
  };
}

/** Waits until nothing is left, or the time is over; the judge decides about what is left then. */
async function untilQuiet(
  world: SoakWorld,
  before: readonly Vitals[],
  signal: AbortSignal,
): Promise<readonly Vitals[]> {
  const isQuiet = (all: readonly Vitals[]): boolean =>
    all.every((now) => leaks(before.find(({ host }) => host === now.host) ?? now, now).length === 0);
  return (await vitalsWhen(world, isQuiet, signal)).vitals;
}

/** The vitals of all daemons, when that is true of them or too much time has passed. */
async function vitalsWhen(
  world: SoakWorld,
  isTrue: (all: readonly Vitals[]) => boolean,
  signal: AbortSignal,
): Promise<{ readonly isTrue: boolean; readonly vitals: readonly Vitals[] }> {
  const endMs = performance.now() + PATIENCE_MS;
  for (;;) {
    const { daemons } = world;
    signal.throwIfAborted();
    if (daemons.length < names.length) {
      throw new MillraceError('MILLRACE_ERR_FAILED', world.log.unexpected.join('\n') || 'a daemon does not run');
    }
    const isLate = performance.now() > endMs;
    try {
      const vitals = await Promise.all(daemons.map(vitalsOf));
      if (isLate || isTrue(vitals)) return { isTrue: isTrue(vitals), vitals };
    } catch (error) {
      // A busy daemon answers late; one that never answers is stuck.
      if (isLate || !(error instanceof MillraceError)) throw error;
    }
    await rest(LOOK_MS, undefined, { signal });
  }
}

async function stopDaemons(world: SoakWorld, failures: string[]): Promise<void> {
  const codes = await Promise.all(names.map((name) => world.stopDaemon(name)));
  for (const [index, code] of codes.entries()) {
    if (code !== 0) failures.push(`daemon ${names[index]} ended with status ${code}`);
  }
  failures.push(...world.log.unexpected.splice(0), ...world.pins().map((pin) => `${pin} is left`));
}
