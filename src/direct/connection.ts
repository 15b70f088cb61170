// A connection as one program offered it, from its offer until it is withdrawn or declined.

import type { Party, Place } from './arenas.ts';
import type { Identity } from './pairing.ts';
import type { Program } from './program.ts';

export interface Connection {
  readonly program: Program;
  /** The program's own number for it. */
  readonly number: number;
  /** Undefined until the socket was looked at. */
  identity: Identity | undefined;
  /** Undefined until the other end was found. */
  promotion: Promotion | undefined;
}

/** Both ends of one connection, in their slot. */
export interface Promotion {
  readonly place: Place;
  /** By party; undefined once it was withdrawn. */
  readonly ends: [Connection | undefined, Connection | undefined];
}

export interface IdentifiedConnection extends Connection {
  identity: Identity;
}

export function partyIn({ ends }: Promotion, connection: Connection): Party {
  return ends[0] === connection ? 0 : 1;
}
