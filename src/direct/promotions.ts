// What becomes of the connections that programs offer: they wait for their other end, get a slot
// together with it, and leave it again.

import { ProtocolError } from '../errors.ts';
import { Fd } from '../native/index.ts';
import type { DirectStatus } from '../status/index.ts';
import { type Arena, Arenas, otherParty, type Place } from './arenas.ts';
import { type Connection, type IdentifiedConnection, type Promotion, partyIn } from './connection.ts';
import type { IdentityAnswer } from './identity.ts';
import { OfferCounts } from './offer-counts.ts';
import { WaitingOffers } from './pairing.ts';
import type { Program } from './program.ts';

/** A program, and all programs of a user, may have so many offers that wait. */
const MAX_WAITING = 4096;
const MAX_WAITING_OF_USER = 4 * MAX_WAITING;
/** Descriptors that are held at once, for one look at all of them. */
const MAX_BATCH = 64;

interface PromotionsOptions {
  readonly ringBytes: number;
  readonly memoryBytes: number;
  /** The identities of sockets, in their order. */
  readonly readIdentities: (sockets: readonly (Fd | undefined)[]) => readonly IdentityAnswer[];
}

interface Offered {
  readonly connection: Connection;
  /** Undefined: it is declined, when its turn comes. */
  readonly socket: Fd | undefined;
}

export class Promotions implements Disposable {
  readonly #arenas: Arenas;
  readonly #readIdentities: PromotionsOptions['readIdentities'];
  readonly #waiting = new WaitingOffers<IdentifiedConnection>();
  readonly #offers = new OfferCounts();
  #batch: Offered[] = [];
  #promoted = 0;
  #declined = 0;

  constructor({ ringBytes, memoryBytes, readIdentities }: PromotionsOptions) {
    this.#arenas = new Arenas({ ringBytes, memoryBytes });
    this.#readIdentities = readIdentities;
  }

  get counters(): Omit<DirectStatus, 'programs'> {
    return {
      waiting: this.#waiting.count,
      connections: this.#arenas.places,
      promoted: this.#promoted,
      declined: this.#declined,
    };
  }

  /**
   * Takes the descriptors over, also when it throws: the program breaks the protocol. What becomes
   * of it is decided by `decide`, at the latest.
   */
  offer(program: Program, number: number, fds: readonly Fd[]): void {
    if (program.connections.has(number)) {
      Fd.closeAside(fds);
      throw new ProtocolError(`connection ${number} is offered twice`);
    }
    const connection: Connection = { program, number, identity: undefined, promotion: undefined };
    const isWanted = fds.length === 1 && this.#hasRoom(program);
    if (!isWanted) Fd.closeAside(fds);
    program.connections.set(number, connection);
    this.#offers.add(program);
    this.#batch.push({ connection, socket: isWanted ? fds[0] : undefined });
    if (this.#batch.length >= MAX_BATCH) this.decide();
  }

  /**
   * Looks at all sockets that were offered, and promotes connections of which both ends are there.
   */
  decide(): void {
    if (this.#batch.length === 0) return;
    const batch = this.#batch;
    this.#batch = [];
    const answers = this.#identities(batch.map(({ socket }) => socket));
    closeAll(batch);
    for (const [index, { connection }] of batch.entries()) {
      // Withdrawn meanwhile, or its program has ended.
      if (connection.program.connections.get(connection.number) !== connection) continue;
      const identity = answers[index];
      if (identity === undefined) this.#decline(connection);
      else this.#pair(Object.assign(connection, { identity }));
    }
  }

  /** Of a connection that is not known it is late: that one was declined meanwhile. */
  withdraw(program: Program, number: number): void {
    const connection = program.connections.get(number);
    if (connection !== undefined) this.#leave(connection);
  }

  /** Forgets all that a program had. The answer tells the arenas that were closed. */
  end(program: Program): readonly Arena[] {
    for (const connection of program.connections.values()) this.#leave(connection);
    return this.#arenas.closeOf(program.id);
  }

  close(): void {
    closeAll(this.#batch.splice(0));
    this.#arenas.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #hasRoom(program: Program): boolean {
    const { ofProgram, ofUser } = this.#offers.of(program);
    return ofProgram < MAX_WAITING && ofUser < MAX_WAITING_OF_USER;
  }

  #identities(sockets: readonly (Fd | undefined)[]): readonly IdentityAnswer[] {
    try {
      return this.#readIdentities(sockets);
    } catch {
      // The system is out of memory or descriptors: these connections stay what they are.
      return [];
    }
  }

  #pair(connection: IdentifiedConnection): void {
    const other = this.#waiting.add(connection);
    if (other === 'waiting') return;
    // A connection of a program with itself has one library at both ends, which could wait for
    // itself.
    const place =
      other === 'twice' || other.program === connection.program ? undefined : this.#place(connection, other);
    if (place === undefined) {
      if (other !== 'twice') this.#decline(other);
      this.#decline(connection);
      return;
    }
    const ends = place.arena.partyOf(connection.program.id) === 0 ? [connection, other] : [other, connection];
    this.#promote(place, ends as [Connection, Connection]);
  }

  #place(one: Connection, other: Connection): Place | undefined {
    try {
      return this.#arenas.take(one.program.id, other.program.id);
    } catch {
      return undefined;
    }
  }

  #promote(place: Place, ends: readonly [Connection, Connection]): void {
    const promotion: Promotion = { place, ends: [...ends] };
    this.#promoted++;
    for (const end of ends) {
      end.promotion = promotion;
      this.#offers.remove(end.program);
      end.program.promote(end.number, place.arena, place.slot, partyIn(promotion, end));
    }
  }

  #decline(connection: Connection): void {
    const { program, number } = connection;
    this.#declined++;
    if (program.connections.get(number) === connection) {
      program.connections.delete(number);
      this.#offers.remove(program);
    }
    program.decline(number);
  }

  #leave(connection: Connection): void {
    const { program, number, promotion } = connection;
    program.connections.delete(number);
    if (promotion === undefined) {
      this.#offers.remove(program);
      if (isIdentified(connection)) this.#waiting.remove(connection);
      return;
    }
    const { place, ends } = promotion;
    const party = partyIn(promotion, connection);
    ends[party] = undefined;
    const other = ends[otherParty(party)];
    if (other === undefined) this.#arenas.giveBack(place);
    else other.program.demote(other.number, place.arena, place.slot, otherParty(party));
  }
}

/**
 * At once: another descriptor of a socket holds back its FIN. Each program waits only for its own
 * sockets.
 */
function closeAll(batch: readonly Offered[]): void {
  for (const offered of Map.groupBy(batch, ({ connection }) => connection.program).values()) {
    Fd.closeAside(offered.map(({ socket }) => socket).filter((socket) => socket !== undefined));
  }
}

function isIdentified(connection: Connection): connection is IdentifiedConnection {
  return connection.identity !== undefined;
}
