// Keeps somebody up to date with what listens on this host, as others reach it.

import { hostOf } from './endpoint.ts';
import type { Event } from './layouts.ts';
import { type Endpoint, eventKinds } from './layouts.ts';
import { ListenerTable, ownAddresses, reachableAt } from './listeners.ts';

/** Listeners outside the cgroup, and addresses that come and go, raise no event: look now and then. */
const LOOK_MS = 1000;

export interface ListenerFollower extends Disposable {
  /** To be told of every event of the steering. */
  onEvent(event: Event): void;
}

/** Calls back at once, and then whenever it looked. `ownPorts` are the daemon's. */
export function followListeners(
  ownPorts: ReadonlySet<number>,
  onListeners: (endpoints: readonly Endpoint[]) => void,
): ListenerFollower {
  const table = new ListenerTable();
  let isLooking = false;
  let isOver = false;
  const look = (): void => {
    isLooking = false;
    if (isOver) return;
    table.refresh();
    const addresses = ownAddresses();
    const listeners = table.all.filter(({ port }) => !ownPorts.has(port));
    onListeners(listeners.flatMap((one) => reachableAt(one, addresses)).filter(isReachable));
  };
  look();
  const timer = setInterval(look, LOOK_MS);
  return {
    onEvent: ({ kind }) => {
      if ((kind !== eventKinds.listen && kind !== eventKinds.unlisten) || isLooking) return;
      isLooking = true;
      // One look for a crowd of events, and after the kernel has finished what it told of.
      setImmediate(look);
    },
    [Symbol.dispose]: () => {
      isOver = true;
      clearInterval(timer);
    },
  };
}

/** By others than this host. */
function isReachable({ address }: Endpoint): boolean {
  const host = hostOf(address);
  return !host.startsWith('127.') && host !== '::1' && !host.startsWith('fe80');
}
