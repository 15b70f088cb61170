// Virtual machines for tests.

export type { CommandResult, RunOptions } from './agent-client.ts';
export { defaultCacheDir } from './cache.ts';
export { Guest } from './guest.ts';
export { GuestPair } from './pair.ts';
export type { GuestOptions, NetworkOptions } from './spec.ts';
