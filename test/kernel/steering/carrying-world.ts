// Two hosts whose connections are carried by somebody, who counts them.

import type { Host } from '../../../src/lab/index.ts';
import type { World } from './world.ts';

export interface CarryingWorld extends World {
  /** Connects of host a's programs that went to its daemon. */
  carried(): number;
  /** Ends the daemons in order; nothing that they made is left. */
  stop(): Promise<void>;
}

/** Rules by which all connections to a host are carried. */
export function carryEverything(to: Host): readonly string[] {
  return [`connect to ${to.ipv4}`, `connect to ${to.ipv6}`];
}

/** The same, past the kernel's TCP between a program and its daemon. */
export function redirectEverything(to: Host): readonly string[] {
  return carryEverything(to).map((rule) => `${rule} redirect`);
}
