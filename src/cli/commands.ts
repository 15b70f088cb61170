// The commands that millrace ships, in the order of the help. Each is loaded only when it is used.

import type { AddCommand } from './command.ts';

export interface CommandSource {
  /** The commands that it adds. */
  readonly names: readonly string[];
  readonly load: () => Promise<AddCommand>;
}

export const commands: readonly CommandSource[] = [
  { names: ['up'], load: async () => (await import('./up.ts')).addUp },
  { names: ['run'], load: async () => (await import('./run-program.ts')).addRun },
  { names: ['doctor'], load: async () => (await import('./doctor.ts')).addDoctor },
  { names: ['dev'], load: async () => (await import('./dev.ts')).addDev },
  { names: ['perf'], load: async () => (await import('./perf.ts')).addPerf },
  { names: ['send'], load: async () => (await import('./send.ts')).addSend },
  { names: ['recv'], load: async () => (await import('./recv.ts')).addRecv },
  { names: ['backend'], load: async () => (await import('./backend.ts')).addBackend },
  { names: ['guest'], load: async () => (await import('./guest.ts')).addGuest },
  { names: ['replay'], load: async () => (await import('./replay.ts')).addReplay },
  { names: ['lab'], load: async () => (await import('./lab.ts')).addLab },
  { names: ['steer'], load: async () => (await import('./steer.ts')).addSteer },
  { names: ['config'], load: async () => (await import('./config.ts')).addConfig },
  { names: ['conn'], load: async () => (await import('./conn.ts')).addConn },
  { names: ['explain', 'reload'], load: async () => (await import('./explain.ts')).addExplain },
  { names: ['peer'], load: async () => (await import('./peer.ts')).addPeer },
  { names: ['top'], load: async () => (await import('./top.ts')).addTop },
];
