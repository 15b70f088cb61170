// Direct connections for people: how they are listed, and why others of programs with the library
// are not direct.

import type { OfferReport } from '../direct/index.ts';
import type { LaneConnections, MirroredStatus } from '../lane/index.ts';
import type { ConnectionStatus } from '../status/index.ts';
import type { PeerTable } from './peer-table.ts';

/** Connections that are direct now, with what lanes know of those that they mirror. */
export function directConnections(
  offers: readonly OfferReport[],
  mirrored: readonly MirroredStatus[],
): readonly ConnectionStatus[] {
  const byKey = new Map(mirrored.map((one) => [one.key, one]));
  return offers
    .filter(({ state }) => state === 'direct' || state === 'leaving')
    .map(({ local, remote, direction, state, peer, key, command, pid, netns, promotedMs }) => {
      const stream = byKey.get(key);
      // The lane has lost its stream: the program goes back to TCP.
      const isLost = key !== '' && stream === undefined;
      return {
        local,
        remote,
        direction,
        mode: 'direct',
        state: state === 'leaving' || isLost ? 'closing' : 'open',
        reason: '',
        peer,
        wire: stream?.wire ?? '',
        lane: stream?.lane ?? -1,
        stream: stream?.stream ?? -1,
        command,
        pid,
        netns,
        container: '',
        bytesOut: stream?.bytesOut ?? null,
        bytesIn: stream?.bytesIn ?? null,
        heldBytes: null,
        sinceMs: promotedMs,
      };
    });
}

interface Sources {
  readonly lanes: { connections(): Promise<LaneConnections> };
  readonly direct: { readonly offers: readonly OfferReport[] } | undefined;
}

interface CarriedAndDirect {
  readonly offers: readonly OfferReport[];
  readonly connections: readonly ConnectionStatus[];
}

/** The connections that lanes carry or mirror, with the offers as they were then. */
export async function carriedAndDirect({ lanes, direct }: Sources): Promise<CarriedAndDirect> {
  // Before the lanes are asked: they have been told to mirror all of these. A connection that is
  // promoted while they answer would seem to have lost its stream.
  const offers = direct?.offers ?? [];
  const { carried, mirrored } = await lanes.connections();
  return { offers, connections: [...carried, ...directConnections(offers, mirrored)] };
}

interface ExplainOptions {
  readonly peers: Pick<PeerTable, 'get' | 'ownerOf' | 'isOwn'>;
  /** Carried and direct ones. */
  readonly connections: readonly ConnectionStatus[];
}

/** One line for each: whether it is direct, and why not. */
export function explainOffer(offer: OfferReport, { peers, connections }: ExplainOptions): string {
  const { local, remote, state, reason, peer, other } = offer;
  const name = local === '' ? 'a connection' : `${local} -> ${remote}`;
  const known = connections.filter((one) => one.local === local && one.remote === remote);
  if (state === 'declined') return `${name}: not direct, its offer was declined: ${reason}`;
  if (state === 'left') return `${name}: not direct any more: ${reason}`;
  if (state === 'waiting') {
    const isCarried = known.some(({ mode }) => mode === 'carried');
    return `${name}: not direct yet: ${isCarried ? 'it is carried, so its other end is the daemon' : whyWaiting(offer, peers)}`;
  }
  if (state === 'leaving') return `${name}: not direct any more: the other end has left it, and it goes back to TCP`;
  if (peer === '') return `${name}: direct, with ${other} on this host`;
  const listed = known.find(({ mode }) => mode === 'direct');
  return listed?.state === 'open'
    ? `${name}: direct, with a program on the host of ${peer}, over ${listed.wire}`
    : `${name}: not direct any more: its link to ${peer} was lost, and it goes back to TCP`;
}

const NOT_OFFERED = 'has not offered it: it has no library, or has hardly used the connection yet';

function whyWaiting({ remote, remoteHost }: OfferReport, peers: ExplainOptions['peers']): string {
  if (remoteHost === '') return 'it is closing';
  if (peers.isOwn(remoteHost)) return `the program at the other end, on this host, ${NOT_OFFERED}`;
  const owner = peers.ownerOf(remote);
  if (owner === undefined) return `${remoteHost} is an address of no peer, and no peer has offered the other end`;
  const peer = peers.get(owner);
  const whyNot = peer?.whyNotUp || peer?.whyNeverDirect || '';
  return whyNot === '' ? `the program on the host of ${owner} ${NOT_OFFERED}` : whyNot;
}
