// `millrace/verbs`: the object model with the providers that come with millrace.

import { registerProvider } from '../verbs/index.ts';
import { ibverbsProvider } from './ibverbs/index.ts';
import { remoteProvider } from './remote/index.ts';
import { softProvider } from './soft/index.ts';

// First, so that in a guest `soft-shm` is the backend's. There are none unless MILLRACE_BACKEND says where the backend is.
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
} from './soft/index.ts';
