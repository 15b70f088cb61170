// Keeps somebody up to date with what listens on this host, as others reach it.

import { hostOf } from './endpoint.ts';
import type { Event } from './layouts.ts';
import { eventKinds, type IpEndpoint } from './layouts.ts';
import { ListenerTable, OwnListeners, reachableAt, scanListeners } from './listeners.ts';
import { SteadyAddresses } from './steady-addresses.ts';

/** Listeners outside the cgroup, and addresses that come and go, raise no event: look now and then, */
const LOOK_MS = 1000;
/** but the kernel's list of thousands of sockets takes a while: never more than this share of the time. */
const MAX_SHARE = 1 / 1000;

export interface ListenerFollower extends Disposable {
  /** To be told of every event of the steering. */
  onEvent(event: Event): void;
}

/** Calls back at once, and then whenever it looked. This process's own listeners do not count. */
export function followListeners(onListeners: (endpoints: readonly IpEndpoint[]) => void): ListenerFollower {
  const own = new OwnListeners();
  const table = new ListenerTable(() => scanListeners((inode) => own.has(inode)));
  const addresses = new SteadyAddresses();
  let isLooking = false;
  let isOver = false;
  let timer: NodeJS.Timeout | undefined;
  const look = (): void => {
    isLooking = false;
    if (isOver) return;
    const startMs = performance.now();
    table.refresh();
    const here = addresses.look();
    onListeners(table.all.flatMap((one) => reachableAt(one, here)).filter(isReachable));
    clearTimeout(timer);
    timer = setTimeout(look, Math.max(LOOK_MS, (performance.now() - startMs) / MAX_SHARE));
  };
  look();
  return {
    onEvent: ({ kind }) => {
      if ((kind !== eventKinds.listen && kind !== eventKinds.unlisten) || isLooking) return;
      isLooking = true;
      // One look for a crowd of events, and after the kernel has finished what it told of.
      setImmediate(look);
    },
    [Symbol.dispose]: () => {
      isOver = true;
      clearTimeout(timer);
    },
  };
}

/** By others than this host. */
function isReachable({ address }: IpEndpoint): boolean {
  const host = hostOf(address);
  return !host.startsWith('127.') && host !== '::1' && !host.startsWith('fe80');
}
