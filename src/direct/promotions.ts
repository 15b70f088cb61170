// What becomes of the connections that programs offer: they wait for their other end, get a slot
// together with it, and leave it again.

import { ProtocolError } from '../errors.ts';
import { Fd } from '../native/index.ts';
import type { DirectStatus } from '../status/index.ts';
import { type Arena, Arenas, otherParty, type Place } from './arenas.ts';
import { type Connection, type IdentifiedConnection, noEnds, type Promotion, partyIn } from './connection.ts';
import { DeclinedOffers, type DeclineReason } from './declined-offers.ts';
import { DirectEvents } from './direct-events.ts';
import type { Mesh, MeshNews } from './mesh.ts';
import { Mirrors } from './mirrors.ts';
import { OfferCounts } from './offer-counts.ts';
import { type OfferReport, reportOf } from './offer-reports.ts';
import { OfferedSockets, type SocketReader } from './offered-sockets.ts';
import { hasConnected, WaitingOffers } from './pairing.ts';
import type { Program, Withdrawal } from './program.ts';
import { RemotePairing } from './remote-pairing.ts';

/** A program, and all programs of a user, may have so many offers that wait. */
const MAX_WAITING = 4096;
const MAX_WAITING_OF_USER = 4 * MAX_WAITING;

interface PromotionsOptions {
  readonly ringBytes: number;
  readonly memoryBytes: number;
  readonly reader: SocketReader;
  /** Without it, both ends must be on this host. */
  readonly mesh?: Mesh | undefined;
  /** Whether there are descriptors for more. */
  readonly hasRoom?: () => boolean;
}

export class Promotions implements Disposable {
  readonly #arenas: Arenas;
  readonly #sockets: OfferedSockets;
  readonly #mirrors: Mirrors | undefined;
  readonly #remote: RemotePairing | undefined;
  readonly #waiting = new WaitingOffers<IdentifiedConnection>();
  readonly #offers = new OfferCounts();
  readonly #lastDeclined = new DeclinedOffers();
  readonly #events: DirectEvents;
  readonly #hasDescriptors: () => boolean;
  #promoted = 0;
  #mirrored = 0;
  #declined = 0;

  constructor({ ringBytes, memoryBytes, reader, mesh, hasRoom = () => true }: PromotionsOptions) {
    this.#hasDescriptors = hasRoom;
    this.#arenas = new Arenas({ ringBytes, memoryBytes });
    this.#sockets = new OfferedSockets(reader);
    this.#events = new DirectEvents((peer, link) => mesh?.wireOf(peer, link) ?? '');
    if (mesh === undefined) return;
    const ends = {
      stopWaiting: (connection: IdentifiedConnection) => this.#stopWaiting(connection),
      waitAgain: (connection: IdentifiedConnection) => this.#pair(connection, false),
      promote: (connection: Connection, place: Place, token: bigint) => this.#promoteMirrored(connection, place, token),
      decline: (connection: IdentifiedConnection) => {
        this.#stopWaiting(connection);
        this.#decline(connection, 'memory');
      },
    };
    this.#mirrors = new Mirrors(this.#arenas, mesh.lanes);
    this.#remote = new RemotePairing(mesh, this.#mirrors, ends, ringBytes);
  }

  /** For programs and connections besides those that are there. */
  get hasDescriptors(): boolean {
    return this.#hasDescriptors();
  }

  get counters(): Omit<DirectStatus, 'programs'> {
    return {
      waiting: this.#waiting.count,
      connections: this.#arenas.places,
      mirrored: this.#mirrored,
      promoted: this.#promoted,
      declined: this.#declined,
    };
  }

  /** Of connections of these programs, and of the last that were declined. */
  reports(programs: Iterable<Program>): readonly OfferReport[] {
    const open = Array.from(programs).flatMap(({ connections }) => Array.from(connections.values(), reportOf));
    return [...open, ...this.#lastDeclined.reports];
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
    const connection: Connection = {
      program,
      number,
      identity: undefined,
      ends: noEnds,
      hasConnected: false,
      promotedMs: 0,
      promotion: undefined,
      mirror: undefined,
    };
    const isWanted = fds.length === 1 && this.#hasRoom(program);
    if (!isWanted) Fd.closeAside(fds);
    program.connections.set(number, connection);
    this.#offers.add(program);
    this.#sockets.add(connection, isWanted ? fds[0] : undefined);
    if (this.#sockets.isFull) this.decide();
  }

  /**
   * Looks at all sockets that were offered, and promotes connections of which both ends are there.
   */
  decide(): void {
    for (const { connection, identity, hasSocket } of this.#sockets.look()) {
      // Withdrawn meanwhile, or its program has ended.
      if (connection.program.connections.get(connection.number) !== connection) continue;
      if (identity === undefined) this.#decline(connection, hasSocket ? 'socket' : 'limit');
      else this.#pair(Object.assign(connection, { identity }), true);
    }
  }

  /** Of a connection that is not known it is late: that one was declined meanwhile. */
  withdraw(program: Program, number: number, { leavesRest = false, wasBulk = false }: Withdrawal = {}): void {
    const connection = program.connections.get(number);
    if (connection === undefined) return;
    if (wasBulk) this.#lastDeclined.add(connection, 'bulk');
    this.#leave(connection, leavesRest);
  }

  /** Rings that were idle since the last time give their pages back. */
  trim(programs: ReadonlyMap<number, Program>): void {
    for (const arena of this.#arenas.withRingPages) {
      for (const party of arena.programs) programs.get(party)?.trim(arena);
      this.#mirrors?.trim(arena);
    }
  }

  /** Forgets all that a program had. The answer tells the arenas that were closed. */
  end(program: Program): readonly Arena[] {
    for (const connection of program.connections.values()) this.#leave(connection, true);
    const closed = this.#arenas.closeOf(program.id);
    for (const arena of closed) this.#mirrors?.ended(arena);
    return closed;
  }

  /** What happens to peers and lanes. */
  hear(news: MeshNews): void {
    if (news.kind === 'peerUp') this.#remote?.peerUp(news.peer, news.isDialer);
    else if (news.kind === 'peerDown') this.#remote?.peerDown(news.peer);
    else if (news.kind === 'linkUp') this.#remote?.linkUp(news.peer);
    else if (news.kind === 'word') this.#remote?.hear(news.peer, news.word);
    else this.#mirrors?.unmirrored(news.arena, news.slot);
  }

  /** Connections with programs of other hosts go back to TCP. */
  leavePeers(): void {
    this.#mirrors?.leaveAll();
  }

  close(): void {
    this.#sockets.close();
    this.#arenas.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #hasRoom(program: Program): boolean {
    if (!this.hasDescriptors) return false;
    const { ofProgram, ofUser } = this.#offers.of(program);
    return ofProgram < MAX_WAITING && ofUser < MAX_WAITING_OF_USER;
  }

  /** `isNew`: it has not waited before. */
  #pair(connection: IdentifiedConnection, isNew: boolean): void {
    const other = this.#waiting.add(connection);
    if (other === 'waiting') {
      this.#remote?.add(connection, isNew);
      return;
    }
    if (other !== 'twice') this.#remote?.remove(other);
    // A connection of a program with itself has one library at both ends, which could wait for
    // itself.
    if (other === 'twice') {
      this.#decline(connection, 'twice');
      return;
    }
    const isOwn = other.program === connection.program;
    const place = isOwn ? undefined : this.#place(connection, other);
    if (place === undefined) {
      for (const end of [other, connection]) this.#decline(end, isOwn ? 'self' : 'memory');
      return;
    }
    connection.hasConnected = hasConnected(connection.identity, other.identity);
    other.hasConnected = hasConnected(other.identity, connection.identity);
    this.#promote(place, place.arena.partyOf(connection.program.id) === 0 ? [connection, other] : [other, connection]);
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
      Object.assign(end, { promotion, promotedMs: Date.now() });
      this.#offers.remove(end.program);
      end.program.promote(end.number, place.arena, place.slot, partyIn(promotion, end));
    }
    for (const end of ends) this.#events.promoted(end);
  }

  #promoteMirrored(connection: Connection, { arena, slot }: Place, token: bigint): void {
    const { program, number } = connection;
    connection.promotedMs = Date.now();
    this.#promoted++;
    this.#mirrored++;
    this.#offers.remove(program);
    program.promote(number, arena, slot, 0, token);
    this.#events.promoted(connection);
  }

  #stopWaiting(connection: IdentifiedConnection): void {
    this.#waiting.remove(connection);
    this.#remote?.remove(connection);
  }

  #decline(connection: Connection, why: DeclineReason): void {
    const { program, number } = connection;
    this.#declined++;
    this.#lastDeclined.add(connection, why);
    if (program.connections.get(number) === connection) {
      program.connections.delete(number);
      this.#offers.remove(program);
    }
    program.decline(number);
  }

  /** `isEnded`: its program has, or has left the rest of its ring to the lane. */
  #leave(connection: Connection, isEnded: boolean): void {
    const { program, number, promotion, mirror } = connection;
    program.connections.delete(number);
    if (connection.promotedMs > 0) this.#events.left(connection);
    if (mirror?.isPromoted === true) this.#mirrored--;
    else if (promotion === undefined) this.#offers.remove(program);
    if (promotion === undefined) {
      if (!isIdentified(connection)) return;
      this.#stopWaiting(connection);
      this.#remote?.leave(connection, isEnded);
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
