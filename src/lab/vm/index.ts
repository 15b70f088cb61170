// Virtual machines for tests.

export { type Accelerator, accelerator } from './accelerator.ts';
export { defaultCacheDir } from './cache.ts';
export { Guest } from './guest.ts';
export { type Image, type ImageOptions, prepareImage } from './image.ts';
export { extraModules } from './modules.ts';
export { GuestPair, type PairOptions, pairAddresses } from './pair.ts';
export type { RxeDevice, RxeOptions } from './rxe.ts';
export type { CommandResult, OutputName, RunOptions } from './session.ts';
export type { GuestOptions, NetworkOptions, SharingOptions } from './spec.ts';
