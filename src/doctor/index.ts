// The doctor: what this machine can and cannot do for millrace, why, and what to do about it.

export { diagnose, type Report } from './diagnose.ts';
export type { Answer, Feature, Finding } from './finding.ts';
export { type Machine, thisMachine } from './machine.ts';
export type { Readiness, Status } from './summary.ts';
