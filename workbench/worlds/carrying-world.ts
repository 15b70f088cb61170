// Two hosts whose connections are carried by somebody, who counts them.

import type { World } from './world.ts';

export interface CarryingWorld extends World {
  /** Connects of host a's programs that went to its daemon. */
  carried(): number;
  /**
   * Connects of host a's programs that went by plain TCP because its daemon seemed dead, or was too
   * slow to ask whether packets get there.
   */
  starved(): number;
  /** Ends the daemons in order; nothing that they made is left. */
  stop(): Promise<void>;
}

const MOST_ATTEMPTS = 3;

/**
 * Does again what failed while the machine was too busy for the daemon: connects go by plain TCP
 * when it gets no processor for half a second, as they should.
 */
export async function unlessStarved<T>(world: CarryingWorld, attempt: () => Promise<T>): Promise<T> {
  for (let attempts = 1; ; attempts++) {
    const before = world.starved();
    try {
      return await attempt();
    } catch (error) {
      if (attempts === MOST_ATTEMPTS || world.starved() === before) throw error;
    }
  }
}
