// `millrace/verbs`: the object model with the providers that come with millrace.

import { registerProvider } from '../verbs/index.ts';
import { ibverbsProvider } from './ibverbs/index.ts';
import { remoteProvider } from './remote/index.ts';
import { softProvider } from './soft/index.ts';

// Registered first, so that in a guest `soft-shm` is the backend's. Without MILLRACE_BACKEND it has
// no devices.
registerProvider(remoteProvider());
registerProvider(softProvider);
registerProvider(ibverbsProvider);

export * from '../verbs/index.ts';
export { openRemoteDevice, type RemoteOptions, remoteProvider } from './remote/index.ts';
export {
  defaultRuntimeDir,
  type FaultPlan,
  openSoftDevice,
  openSoftProvided,
  type SoftDeviceOptions,
  type SoftWire,
  sweepRuntimeDir,
} from './soft/index.ts';
