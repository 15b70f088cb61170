// What connections between hosts need besides the two programs: peers, and lanes that mirror slots
// over links.

import type { MirrorOrder } from './arena/index.ts';

/** What two daemons tell each other of one connection. */
export type DirectWord =
  /** An end of it waits here. */
  | { readonly kind: 'directWaits'; readonly key: string }
  /** The other end is here, and mirrored over that link. The dialer answers with the same. */
  | { readonly kind: 'directFound'; readonly key: string; readonly proof: string; readonly link: number }
  /** There is no such end here, or it cannot be promoted. */
  | { readonly kind: 'directGone'; readonly key: string };

/** The lanes of this daemon, as far as mirrors need them. */
export interface MirrorLanes {
  /** The lane of a link. */
  laneOf(link: number): number;
  tell(lane: number, order: MirrorOrder): void;
  tellAll(order: MirrorOrder): void;
  /** Resolves when all lanes have heard what they were told before. */
  settled(): Promise<void>;
}

export interface Mesh {
  /** This node's name. */
  readonly name: string;
  readonly lanes: MirrorLanes;
  /** The peers that may have the end that an end of this host knows by that address. */
  peersFor(host: string): readonly string[];
  /** Does nothing when the peer is not up. */
  tell(peer: string, word: DirectWord): void;
  /** One of the links to the peer that are up, each in turn; where one is not, it is made. */
  nextLink(peer: string): number | undefined;
  isLinkUp(peer: string, link: number): boolean;
  /** What a link goes over; '' when it is not known. */
  wireOf(peer: string, link: number): string;
}

/** What happens to peers and lanes. */
export type MeshNews =
  /** The control connection is up. `isDialer`: this side dialed it. */
  | { readonly kind: 'peerUp'; readonly peer: string; readonly isDialer: boolean }
  | { readonly kind: 'peerDown'; readonly peer: string }
  | { readonly kind: 'linkUp'; readonly peer: string }
  | { readonly kind: 'word'; readonly peer: string; readonly word: DirectWord }
  /** The lane does not touch the slot any more. */
  | { readonly kind: 'unmirrored'; readonly arena: number; readonly slot: number };
