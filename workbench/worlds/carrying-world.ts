// Two hosts whose connections are carried by somebody, who counts them.

import type { World } from './world.ts';

export interface CarryingWorld extends World {
  /** Connects of host a's programs that went to its daemon. */
  carried(): number;
  /** Ends the daemons in order; nothing that they made is left. */
  stop(): Promise<void>;
}
