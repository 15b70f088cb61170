// The soak: what other rooms may use.

export { timeText } from './judge.ts';
export type { PhaseReport, Wire } from './phase.ts';
export type { Fault } from './plan.ts';
export { behaviours } from './script.ts';
export { soak } from './soak.ts';
export { Traffic } from './traffic.ts';
