// A connection as one program offered it, from its offer until it is withdrawn or declined.

import type { Party, Place } from './arenas.ts';
import type { Identity } from './pairing.ts';
import type { Program } from './program.ts';

/** The addresses of a socket as its program sees them; '' when it is no TCP socket. */
export interface SocketEnds {
  readonly local: string;
  readonly remote: string;
  readonly remoteHost: string;
  /** The cookie of its network namespace; 0 when it is not known. */
  readonly netns: number;
}

export const noEnds: SocketEnds = { local: '', remote: '', remoteHost: '', netns: 0 };

export interface Connection {
  readonly program: Program;
  /** The program's own number for it. */
  readonly number: number;
  /** Undefined until the socket was looked at. */
  identity: Identity | undefined;
  /** Known once the socket was looked at. */
  ends: SocketEnds;
  /** This end connected; known once the other one is found. */
  hasConnected: boolean;
  /** ms since the epoch; 0 until it is. */
  promotedMs: number;
  /** Undefined until the other end was found on this host. */
  promotion: Promotion | undefined;
  /** Undefined until the other end was found on the host of a peer. */
  mirror: Mirror | undefined;
}

/** Both ends of one connection, in their slot. */
export interface Promotion {
  readonly place: Place;
  /** By party; undefined once it was withdrawn. */
  readonly ends: [Connection | undefined, Connection | undefined];
}

/** One end of a connection with a program of another host, in its slot. */
interface Mirror {
  readonly place: Place;
  /** By which both daemons know the connection. */
  readonly key: string;
  readonly peer: string;
  readonly link: number;
  /** Its program knows of the slot. */
  isPromoted: boolean;
}

export interface IdentifiedConnection extends Connection {
  identity: Identity;
}

export function partyIn({ ends }: Promotion, connection: Connection): Party {
  return ends[0] === connection ? 0 : 1;
}
