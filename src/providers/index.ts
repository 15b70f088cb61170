// `millrace/verbs`: the object model with the providers that come with millrace.

import { registerProvider } from '../verbs/index.ts';
import { ibverbsProvider } from './ibverbs/index.ts';
import { softProvider } from './soft/index.ts';

registerProvider(softProvider);
registerProvider(ibverbsProvider);

export * from '../verbs/index.ts';
export {
  defaultRuntimeDir,
  type FaultPlan,
  openSoftDevice,
  type SoftDeviceOptions,
  type SoftWire,
} from './soft/index.ts';
