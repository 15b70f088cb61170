// Facts about this machine and its processes: cgroup mount, folders, process identity, version.

export { findCgroup2Mount } from './cgroup.ts';
export { makeFolder } from './folder.ts';
export { checkInstance, DEFAULT_INSTANCE } from './instance.ts';
export {
  currentOwner,
  type Liveness,
  livenessOf,
  type Owner,
  type OwnerView,
  ownerToken,
  parseOwner,
  parseOwnerToken,
  thisMachine,
} from './owner.ts';
export { directSocketPath, makeRunFolder, runFolder } from './run-folder.ts';
export { packageVersion } from './version.ts';
