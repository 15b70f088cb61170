// The doctor: what this machine can and cannot do for millrace, why, and what to do about it.

export { type DiagnoseOptions, diagnose, type Report } from './diagnose.ts';
export { type Answer, type Feature, type Finding, features, type Group } from './finding.ts';
export { type Machine, type MachineOptions, thisMachine } from './machine.ts';
export type { FeatureSummary, Readiness, Status } from './summary.ts';
