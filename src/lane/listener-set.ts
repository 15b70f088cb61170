// The listeners of a lane in one network namespace and address family. An address has only so many
// ports for connections to one listener (net.ipv4.ip_local_port_range, 28,232 as a rule), while by
// plain TCP it has so many for each destination. So there are several, of which steering takes one
// at random; those with half as many clients as that get no more, and others are opened instead.

import { readFileSync } from 'node:fs';
import type { Acceptor } from '../loop/index.ts';
import type { Address, Socket } from '../native/index.ts';
import { LANE_PORTS } from '../steering/index.ts';

/** More than any host has memory for connections. */
const MAX_LISTENERS = 64;
/** The others are for connects that are under way, and for ports that are not free yet. */
const USED_SHARE = 1 / 2;
/** A full one that has fewer clients than this share of a full one gets some again. */
const ROOM_SHARE = 3 / 4;
/** Also valid for IPv6. The thread's own network namespace decides whose it is. */
const RANGE_FILE = '/proc/sys/net/ipv4/ip_local_port_range';
/** The kernel's default, where there is no such file. */
const USUAL_PORTS = 28_232;

/** One listener, and how many of the clients that it accepted are open. */
export interface ListenerPlace {
  readonly set: ListenerSet;
  readonly acceptor: Acceptor;
  clients: number;
  isFull: boolean;
}

interface ListenerSetOptions {
  readonly address: Address;
  /** So many at least have room, as long as more can be opened. */
  readonly roomy: number;
  readonly open: (address: Address, onAccept: (socket: Socket) => void) => Acceptor;
  readonly admit: (socket: Socket, place: ListenerPlace) => void;
  /** That an address has for connections to one listener. */
  readonly ports?: number;
}

export class ListenerSet implements Disposable {
  readonly netns: number;
  readonly #options: ListenerSetOptions;
  readonly #places: ListenerPlace[] = [];
  readonly #most: number;
  #limit = MAX_LISTENERS;
  #isStale = false;

  /**
   * Listens at the address, and on other ports that are free. Call it in the network namespace, as
   * `refresh`.
   */
  constructor(options: ListenerSetOptions) {
    const { address, ports = portsHere() } = options;
    this.#options = options;
    this.#most = Math.max(1, Math.floor(ports * USED_SHARE));
    const first = this.#add(address);
    this.netns = first.acceptor.listener.netnsCookie;
    try {
      this.refresh();
    } catch (error) {
      this.close();
      throw error;
    }
  }

  /** Where clients are to be sent: those with room, or all where none has. */
  get listeners(): readonly Socket[] {
    const roomy = this.#roomy;
    return (roomy.length > 0 ? roomy : this.#places).slice(0, LANE_PORTS).map(({ acceptor }) => acceptor.listener);
  }

  /** Others have room than before: call `refresh`. */
  get isStale(): boolean {
    return this.#isStale;
  }

  /** A client of that listener is carried. */
  entered(place: ListenerPlace): void {
    if (++place.clients >= this.#most && !place.isFull) this.#setFull(place, true);
  }

  /** It has ended. */
  left(place: ListenerPlace): void {
    if (--place.clients < this.#most * ROOM_SHARE && place.isFull) this.#setFull(place, false);
  }

  /** Opens others where too few have room. Throws when one cannot be opened; then no other is. */
  refresh(): void {
    this.#isStale = false;
    const before = this.#limit;
    while (this.#roomy.length < this.#options.roomy && this.#places.length < this.#limit) {
      this.#limit = this.#places.length;
      this.#add(anyPort(this.#options.address));
      this.#limit = before;
    }
  }

  /** Acceptors that paused for want of a descriptor go on. */
  reopen(): void {
    for (const { acceptor } of this.#places) acceptor.reopen();
  }

  close(): void {
    for (const { acceptor } of this.#places) acceptor.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  get #roomy(): readonly ListenerPlace[] {
    return this.#places.filter(({ isFull }) => !isFull);
  }

  #setFull(place: ListenerPlace, isFull: boolean): void {
    place.isFull = isFull;
    this.#isStale = true;
  }

  #add(address: Address): ListenerPlace {
    const { open, admit } = this.#options;
    const acceptor = open(address, (socket) => admit(socket, place));
    const place: ListenerPlace = { set: this, acceptor, clients: 0, isFull: false };
    this.#places.push(place);
    return place;
  }
}

function anyPort(address: Address): Address {
  return address.family === 'unix' ? address : { ...address, port: 0 };
}

function portsHere(): number {
  try {
    const [first = Number.NaN, last = Number.NaN] = readFileSync(RANGE_FILE, 'utf8').trim().split(/\s+/).map(Number);
    const ports = last - first + 1;
    return ports > 0 ? ports : USUAL_PORTS;
  } catch {
    return USUAL_PORTS;
  }
}
