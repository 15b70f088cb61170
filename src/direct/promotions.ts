// What becomes of the connections that programs offer: they wait for their other end, get a slot
// together with it, and leave it again.

import { ProtocolError } from '../errors.ts';
import type { Fd } from '../native/index.ts';
import type { DirectStatus } from '../status/index.ts';
import { type Arena, Arenas, otherParty, type Place } from './arenas.ts';
import { type Connection, type IdentifiedConnection, type Promotion, partyIn } from './connection.ts';
import type { IdentityAnswer } from './identity.ts';
import { WaitingOffers } from './pairing.ts';
import type { Program } from './program.ts';

/** A program may have so many offers that wait. */
const MAX_WAITING = 4096;
/** Descriptors that are held at once, for one look at all of them. */
const MAX_BATCH = 64;

interface PromotionsOptions {
  readonly ringBytes: number;
  readonly memoryBytes: number;
  /** The identities of sockets, in their order; closes the sockets. */
  readonly takeIdentities: (sockets: readonly (Fd | undefined)[]) => readonly IdentityAnswer[];
}

interface Offered {
  readonly connection: Connection;
  /** Undefined: it is declined, when its turn comes. */
  readonly socket: Fd | undefined;
}

export class Promotions implements Disposable {
  readonly #arenas: Arenas;
  readonly #takeIdentities: PromotionsOptions['takeIdentities'];
  readonly #waiting = new WaitingOffers<IdentifiedConnection>();
  #batch: Offered[] = [];
  #promoted = 0;
  #declined = 0;

  constructor({ ringBytes, memoryBytes, takeIdentities }: PromotionsOptions) {
    this.#arenas = new Arenas({ ringBytes, memoryBytes });
    this.#takeIdentities = takeIdentities;
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
      for (const fd of fds) fd.close();
      throw new ProtocolError(`connection ${number} is offered twice`);
    }
    const connection: Connection = { program, number, identity: undefined, promotion: undefined };
    const isWanted = fds.length === 1 && program.waiting < MAX_WAITING;
    if (!isWanted) for (const fd of fds) fd.close();
    program.connections.set(number, connection);
    program.waiting++;
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
    for (const { socket } of this.#batch.splice(0)) socket?.close();
    this.#arenas.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #identities(sockets: readonly (Fd | undefined)[]): readonly IdentityAnswer[] {
    try {
      return this.#takeIdentities(sockets);
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
      end.program.waiting--;
      end.program.promote(end.number, place.arena, place.slot, partyIn(promotion, end));
    }
  }

  #decline(connection: Connection): void {
    const { program, number } = connection;
    this.#declined++;
    if (program.connections.get(number) === connection) {
      program.connections.delete(number);
      program.waiting--;
    }
    program.decline(number);
  }

  #leave(connection: Connection): void {
    const { program, number, promotion } = connection;
    program.connections.delete(number);
    if (promotion === undefined) {
      program.waiting--;
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

function isIdentified(connection: Connection): connection is IdentifiedConnection {
  return connection.identity !== undefined;
}
