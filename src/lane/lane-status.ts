// The status of a lane's links and connections.

import type { DirectStream, Link, Session, Stream, StreamInfo } from '../channel/index.ts';
import { type Address, formatAddress } from '../native/index.ts';
import type { ConnectionStatus, LinkStatus } from '../status/index.ts';
import type { MirroredStatus } from './messages.ts';

/** Both addresses as the program of this host sees them: its own first. */
export function endsOf({ isOpener, client, original }: StreamInfo): readonly [Address, Address] {
  return isOpener ? [client, original] : [original, client];
}

export function linkStatus(index: number, lane: number, session: Session): LinkStatus {
  const { link, state, wire, recoveries } = session;
  return {
    index,
    lane,
    state,
    wire,
    inPlace: link?.transport?.window !== undefined,
    streams: session.streamCount,
    ...session.counters,
    posts: link?.transport?.posts ?? 0,
    notificationsOut: link?.transport?.notificationsOut ?? 0,
    notificationsIn: link?.transport?.notificationsIn ?? 0,
    recoveries,
    slotsUsed: link?.outgoing.usedSlots ?? 0,
    slots: link?.outgoing.geometry.slots ?? 0,
    heldBytes: heldOf(link),
    roundTripUs: link?.roundTripUs ?? -1,
  };
}

function heldOf(link: Link | undefined): number {
  let bytes = 0;
  for (const stream of link?.streams ?? []) bytes += stream.heldBytes;
  return bytes;
}

export function connectionStatus(stream: Stream, peer: string, wire: string, lane: number): ConnectionStatus {
  const { info } = stream;
  const [here, there] = endsOf(info);
  return {
    local: formatAddress(here),
    remote: formatAddress(there),
    direction: info.isOpener ? 'out' : 'in',
    mode: 'carried',
    state: stream.state,
    reason: '',
    peer,
    wire,
    lane,
    stream: stream.id,
    command: info.command,
    pid: info.pid,
    netns: info.netns,
    container: '',
    bytesOut: stream.bytesOut,
    bytesIn: stream.bytesIn,
    heldBytes: stream.heldBytes,
    sinceMs: stream.sinceMs,
  };
}

export function mirroredStatus(stream: DirectStream, wire: string, lane: number): MirroredStatus {
  const { key, id, bytesOut, bytesIn } = stream;
  return { key, wire, lane, stream: id, bytesOut, bytesIn };
}
