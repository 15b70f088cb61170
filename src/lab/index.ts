// Hosts on one machine, for demos, tests and benchmarks.

export { processCount } from './cgroup-tree.ts';
export { findLab, labelOf } from './find.ts';
export { Host, type RunOptions } from './host.ts';
export { Lab, type LabOptions } from './lab.ts';
export { collect, findProgram, type ProgramResult, requireTool } from './program.ts';
export { defaultRunDir, type LabRecord, type RecordProblem } from './record.ts';
export { removeLab } from './remove.ts';
export { hostIndexOf, hostLimits, type LabSpec, switchNamespaceOf } from './spec.ts';
export { type KnownLab, type LabState, listLabs, type SweepReport, sweep } from './sweep.ts';
