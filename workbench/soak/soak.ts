// The soak: connections of every behaviour between two hosts while everything between them breaks,
// one wire after the other.

import { Random } from '../worlds/index.ts';
import { type PhaseReport, runPhase, type Wire } from './phase.ts';
import { directFaultKinds, type Fault, faultKinds, planFaults, quickFaultKinds } from './plan.ts';
import { channelSettings, SoakWorld } from './world.ts';

/** Phases shorter than this have their faults closer together, and closer to their ends. */
const SHORT_SECONDS = 30;

interface SoakOptions {
  readonly seed: number;
  /** The time of all phases together, without starting and stopping daemons. */
  readonly seconds: number;
  readonly wires: readonly Wire[];
  readonly connections: number;
  /** Programs have the library of Direct, and break as well. */
  readonly isDirect: boolean;
  readonly signal: AbortSignal;
  readonly onPhase?: (wire: Wire) => void;
  readonly onFault?: (fault: Fault) => void;
}

export interface SoakReport {
  readonly v: 1;
  readonly seed: number;
  readonly connections: number;
  readonly isDirect: boolean;
  readonly isOk: boolean;
  readonly phases: readonly PhaseReport[];
}

export async function soak(options: SoakOptions): Promise<SoakReport> {
  const { seed, seconds, wires, connections, isDirect, signal, onPhase = () => {}, onFault = () => {} } = options;
  await using world = await SoakWorld.create({ signal, isDirect });
  const random = new Random(seed);
  const phaseSeconds = seconds / wires.length;
  // One plan for all phases: faults that did not fit into a short phase come in the next.
  const isShort = phaseSeconds < SHORT_SECONDS;
  const [mostRestMs, calmMs] = isShort ? [600, 300] : [3000, 1000];
  const kinds = !isDirect ? faultKinds : isShort ? quickFaultKinds : directFaultKinds;
  const plan = planFaults({ seed, kinds, deadMs: channelSettings.deadMs, mostRestMs });
  const leastFaults = Math.ceil(kinds.length / wires.length);
  const phases: PhaseReport[] = [];
  for (const wire of wires) {
    onPhase(wire);
    const own = { wire, seed: random.between(1, 1_000_000), seconds: phaseSeconds };
    phases.push(await runPhase(world, { ...own, plan, leastFaults, calmMs, connections, signal, onFault }));
  }
  return { v: 1, seed, connections, isDirect, isOk: phases.every(({ failures }) => failures.length === 0), phases };
}
