// Virtual machines for tests.

export type { CommandResult } from './agent-client.ts';

export { Guest } from './guest.ts';
export type { GuestOptions } from './spec.ts';
