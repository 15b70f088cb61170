// Follows what listens on this host, at the addresses where other hosts reach it.

import { hostOf } from './ip-endpoint.ts';
import type { Event } from './layouts.ts';
import { eventKinds, type IpEndpoint } from './layouts.ts';
import { isHostLocal, OwnListeners, reachableAt, scanListeners } from './listeners.ts';
import { SteadyAddresses } from './steady-addresses.ts';

/**
 * Listeners outside the cgroup, and addresses that come and go, raise no event, so the tables are
 * scanned at this interval.
 */
const SCAN_MS = 1000;
/**
 * A scan of thousands of sockets takes a while: scanning never takes more than this share of the
 * time.
 */
const MAX_SHARE = 1 / 1000;

export interface ListenerFollower extends Disposable {
  /** Pass it every event of the steering. */
  onEvent(event: Event): void;
}

/**
 * Calls back at once, and then after each scan, with the addresses of this host as well. This
 * process's own listeners are left out.
 */
export function followListeners(
  onListeners: (endpoints: readonly IpEndpoint[], addresses: readonly string[]) => void,
): ListenerFollower {
  const own = new OwnListeners();
  const addresses = new SteadyAddresses();
  let isScanDue = false;
  let isOver = false;
  let timer: NodeJS.Timeout | undefined;
  const scan = (): void => {
    isScanDue = false;
    if (isOver) return;
    const startMs = performance.now();
    const listeners = scanListeners((inode) => own.has(inode));
    const here = addresses.read();
    onListeners(listeners.flatMap((listener) => reachableAt(listener, here)).filter(isReachable), here);
    clearTimeout(timer);
    timer = setTimeout(scan, Math.max(SCAN_MS, (performance.now() - startMs) / MAX_SHARE));
  };
  scan();
  return {
    onEvent: ({ kind }) => {
      if ((kind !== eventKinds.listen && kind !== eventKinds.unlisten) || isScanDue) return;
      isScanDue = true;
      // One scan serves many events, and it must come after the kernel has finished what it told
      // of.
      setImmediate(scan);
    },
    [Symbol.dispose]: () => {
      isOver = true;
      clearTimeout(timer);
    },
  };
}

/** By other hosts. */
function isReachable({ address }: IpEndpoint): boolean {
  return !isHostLocal(hostOf(address));
}
