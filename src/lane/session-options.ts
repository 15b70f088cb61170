// The options of sessions, from the config.

import { HEADER_BYTES, type SessionOptions, slotsFor } from '../channel/index.ts';
import type { LaneSettings } from './messages.ts';

const NS_PER_MS = 1_000_000;
const NS_PER_SECOND = 1_000_000_000;

export function sessionOptions({ channel, devices, device }: LaneSettings): SessionOptions {
  const { slotBytes, ringBytes, recordBytes } = channel;
  const slots = ringBytes / slotBytes;
  // With header and proof; a record may be no longer than an eighth of the ring.
  const maxRecordSlots = Math.min(slots / 8, slotsFor(Math.max(recordBytes, HEADER_BYTES), slotBytes));
  return {
    geometry: { slotBytes, slots, maxRecordSlots },
    devices,
    dataQps: channel.dataQps,
    sendRequests: channel.sendRequests,
    requestsPerPost: channel.requestsPerPost,
    pollAfter: channel.pollAfter,
    receives: channel.receives,
    sharedReceiveQueue: channel.sharedReceiveQueue,
    firstWindowBytes: channel.firstWindowBytes,
    windowBytes: channel.windowBytes,
    recoveryNs: channel.recoverySeconds * NS_PER_SECOND,
    deadNs: channel.deadMs * NS_PER_MS,
    idleNs: channel.idleSeconds * NS_PER_SECOND,
    gidIndex: device.gidIndex,
    mtu: device.mtu,
  };
}
