// What a daemon holds, measured before and after the traffic, when both must be the same.

import { readdirSync } from 'node:fs';
import type { DaemonProcess } from '../worlds/index.ts';

export interface Vitals {
  readonly host: string;
  readonly isUp: boolean;
  readonly connections: number;
  readonly slotsUsed: number;
  readonly heldBytes: number;
  readonly fds: number;
  readonly rssBytes: number;
  readonly recoveries: number;
  /** Programs that have the library, and their slots of arenas. */
  readonly programs: number;
  readonly places: number;
  /** Since the daemon was started. */
  readonly carried: number;
  readonly promoted: number;
}

/**
 * Descriptors of a request to the control API, and of a device: lanes open it for their first link
 * and keep it (13 for roce, 7 for tcp).
 */
const SPARE_FDS = 16;
/** Slots of heartbeats: the peer reports only from time to time how far it has read. */
const SPARE_SLOTS = 64;
const MIB = 1024 * 1024;
/**
 * The heaps of the main thread and the lanes grow under load and are not returned to the system.
 */
const SPARE_RSS_BYTES = 128 * MIB;

export async function vitalsOf(daemon: DaemonProcess): Promise<Vitals> {
  const { peers, lanes, memory, verdicts, direct, pid } = await daemon.api.status();
  const links = peers.flatMap((peer) => peer.links);
  return {
    host: daemon.host.name,
    isUp: peers.length === 1 && peers.every(({ state }) => state === 'up'),
    connections: lanes.reduce((sum, lane) => sum + lane.connections, 0),
    slotsUsed: links.reduce((sum, link) => sum + link.slotsUsed, 0),
    heldBytes: memory.heldBytes,
    fds: readdirSync(`/proc/${pid}/fd`).length,
    rssBytes: memory.rssBytes,
    recoveries: links.reduce((sum, link) => sum + link.recoveries, 0),
    programs: direct.programs,
    places: direct.connections,
    carried: verdicts.carried ?? 0,
    promoted: direct.promoted,
  };
}

/** The differences that are failures. */
export function leaks(before: Vitals, after: Vitals): readonly string[] {
  const { host } = after;
  const grown = after.rssBytes - before.rssBytes;
  return [
    ...(after.isUp ? [] : [`daemon ${host}: its peer is not up`]),
    ...(after.connections === 0 ? [] : [`daemon ${host}: ${after.connections} streams are left`]),
    ...(after.programs === 0 ? [] : [`daemon ${host}: ${after.programs} programs are left`]),
    ...(after.places === 0 ? [] : [`daemon ${host}: ${after.places} direct connections are left`]),
    ...(after.slotsUsed <= SPARE_SLOTS ? [] : [`daemon ${host}: ${after.slotsUsed} slots are left in use`]),
    ...(after.heldBytes === 0 ? [] : [`daemon ${host}: ${after.heldBytes} bytes are still held`]),
    ...(after.fds <= before.fds + SPARE_FDS ? [] : [`daemon ${host}: ${after.fds} descriptors, ${before.fds} before`]),
    ...(grown <= SPARE_RSS_BYTES ? [] : [`daemon ${host}: its memory grew by ${Math.round(grown / MIB)} MiB`]),
  ];
}
