// Hosts on one machine for demos, tests and benchmarks: what other rooms may use.

export { findCgroup2Mount } from '../cgroup.ts';
export type { Owner } from '../owner.ts';
export { processCount } from './cgroup-tree.ts';
export { findLab, labelOf } from './find.ts';
export { Host, type RunOptions } from './host.ts';
export { Lab, type LabOptions } from './lab.ts';
export { findProgram, type ProgramResult } from './program.ts';
export { defaultRunDir, type LabRecord, type RecordProblem } from './record.ts';
export { removeLab } from './remove.ts';
export { hostLimits, type LabSpec, type WireOptions } from './spec.ts';
export {
  type KnownLab,
  type LabList,
  type LabState,
  listLabs,
  type SweepOptions,
  type SweepReport,
  sweep,
} from './sweep.ts';
