// The commands of a checkout: they need files that the package does not contain.

import type { CommandSource } from '../../src/cli/index.ts';

export const workbenchCommands: readonly CommandSource[] = [
  { names: ['demo'], load: async () => (await import('./demo.ts')).addDemo },
  { names: ['bench'], load: async () => (await import('./bench.ts')).addBench },
  { names: ['soak'], load: async () => (await import('./soak.ts')).addSoak },
  { names: ['scale'], load: async () => (await import('./scale.ts')).addScale },
];
