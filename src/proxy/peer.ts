// A peer: its address, control connection, links and listeners, and the state that follows from
// them. Its listeners are announced to the kernel only while it is ready to carry and all lanes
// have been told where they are.

import { setTimeout as sleep } from 'node:timers/promises';
import type { ToLane } from '../lane/index.ts';
import type { LinkStatus, PeerStatus } from '../status/index.ts';
import { publishLink, publishPeer } from '../status/index.ts';
import { formatIpEndpoint, type IpEndpoint } from '../steering/index.ts';
import { formatHostPort } from '../text/index.ts';
import type { Announcements } from './announcements.ts';
import type { ControlPeer, PeerConnection, PeerHello } from './control/index.ts';
import { DeathProbe } from './death-probe.ts';
import { type PeerControl, type PeerLink, type PeerPhase, phaseOf, stateOfPhase } from './peer-phase.ts';

/** The lanes of this daemon, as far as peers need them. */
export interface PeerLanes {
  readonly count: number;
  /** The lane of a link. */
  laneOf(link: number): number;
  tell(lane: number, message: ToLane): void;
  tellAll(message: ToLane): void;
  /** Resolves when all lanes have heard what they were told before. */
  settled(): Promise<void>;
}

export interface PeerParts {
  readonly lanes: PeerLanes;
  readonly announcements: Announcements;
  readonly knocks: Knocks;
  /** Of the rings of direct connections here; absent where there are none. */
  readonly ringBytes?: number | undefined;
}

/** Whether packets of this host get to where peers listen. */
export interface Knocks {
  announced(to: IpEndpoint): void;
  withdrawn(to: IpEndpoint): void;
  /** Resolves when it is known whether they get there; undefined when it is, or nobody asks. */
  asked(to: IpEndpoint): Promise<void> | undefined;
}

/** As long as a knock is tried that nobody answers. */
const TOGETHER_MS = 4000;

interface Listener {
  readonly endpoint: IpEndpoint;
  /** All lanes know that it is at this peer. */
  isRouted: boolean;
}

export class Peer implements Disposable {
  readonly #parts: PeerParts;
  /** By which the kernel knows it. */
  readonly #number: number;
  readonly #links = new Map<number, PeerLink>();
  readonly #wires = new Map<number, string>();
  readonly #listeners = new Map<string, Listener>();
  #routedCount = 0;
  readonly #deathProbe: DeathProbe;
  #place: ControlPeer;
  #control: PeerControl;
  #incarnation = '';
  #ringBytes: number | undefined;
  #phase: PeerPhase;
  #sinceMs = Date.now();

  /** `waitsFor`: why it is not connected yet. */
  constructor(parts: PeerParts, number: number, place: ControlPeer, waitsFor: string) {
    this.#parts = parts;
    this.#number = number;
    this.#place = place;
    this.#control = { kind: 'waiting', reason: waitsFor };
    this.#phase = phaseOf(this.#control, []);
    this.#deathProbe = new DeathProbe(
      () => this.#place,
      () => this.#parts.lanes.tellAll({ kind: 'peerDead', peer: this.name }),
    );
  }

  get name(): string {
    return this.#place.name;
  }

  get host(): string {
    return this.#place.host;
  }

  /** It is at another address from now on, or known from another source. */
  moveTo(place: ControlPeer): void {
    this.#place = place;
  }

  /**
   * `links`: what the lanes say of its links. `isSecure`: whether a control connection would use
   * TLS.
   */
  status(links: readonly LinkStatus[], isSecure: boolean): PeerStatus {
    const { kind, reason } = this.#phase;
    return {
      name: this.name,
      address: formatHostPort(this.#place),
      source: this.#place.source,
      state: stateOfPhase[kind],
      reason,
      sinceMs: this.#sinceMs,
      isSecure: this.#control.kind === 'up' ? this.#control.connection.isSecure : isSecure,
      listeners: this.#routedCount,
      links: links.toSorted((left, right) => left.index - right.index),
    };
  }

  /** Why a destination on its host was not announced; `unheard`: what a knock there has told. */
  whyNotAnnounced(unheard = ''): string {
    const { kind } = this.#phase;
    if (kind === 'ready' && unheard !== '') return unheard;
    if (kind === 'ready') return `peer ${this.name} does not listen there, or does not accept this host`;
    return this.whyNotUp;
  }

  /** '' when it is. */
  get whyNotUp(): string {
    const { kind, reason } = this.#phase;
    if (kind === 'ready') return '';
    return `peer ${this.name} is ${stateOfPhase[kind]}${reason === '' ? '' : `: ${reason}`}`;
  }

  // The control connection.

  connected(connection: PeerConnection, hello: PeerHello): void {
    this.#deathProbe.stop();
    const { lanes } = this.#parts;
    const isSame = this.#incarnation === hello.incarnation;
    this.#incarnation = hello.incarnation;
    this.#ringBytes = hello.ringBytes;
    this.#control = { kind: 'up', connection };
    if (!isSame) this.#links.clear();
    const links = Array.from({ length: Math.max(lanes.count, hello.lanes) }, (_, link) => link);
    for (const link of links) {
      if (!this.#links.has(link)) this.#links.set(link, { state: 'idle', reason: '' });
    }
    for (let lane = 0; lane < lanes.count; lane++) {
      const own = links.filter((link) => lanes.laneOf(link) === lane);
      lanes.tell(lane, { kind: 'peerUp', peer: this.name, isDialer: connection.isDialer, isSame, links: own });
    }
    this.#update();
  }

  disconnected(reason: string): void {
    this.#control = { kind: 'down', reason };
    this.#parts.lanes.tellAll({ kind: 'peerDown', peer: this.name });
    this.#update();
    this.#deathProbe.start();
  }

  /** It is no longer believed: its streams end. When it is again, it starts from the beginning. */
  revoked(reason: string): void {
    this.#incarnation = '';
    this.#parts.lanes.tellAll({ kind: 'peerGone', peer: this.name, reason });
  }

  dialFailed(reason: string): void {
    if (this.#control.kind === 'up') return;
    this.#control = { kind: 'down', reason };
    this.#update();
  }

  /** Ends the control connection, because the peer broke the protocol. */
  refuse(reason: string): void {
    if (this.#control.kind === 'up') this.#control.connection.refuse(reason);
  }

  // Links.

  /** From this daemon's lane of the link to the peer's. */
  sendLink(link: number, body: object): void {
    if (this.#control.kind === 'up') this.#control.connection.sendLink(link, body);
  }

  /** From the peer's lane of the link to this daemon's. */
  hearLink(link: number, body: object): void {
    const { lanes } = this.#parts;
    lanes.tell(lanes.laneOf(link), { kind: 'link', peer: this.name, link, body });
  }

  get linkCount(): number {
    return this.#links.size;
  }

  isLinkUp(link: number): boolean {
    return this.#links.get(link)?.state === 'up';
  }

  /** Something is about to use that link. */
  wantLink(link: number): void {
    const { lanes } = this.#parts;
    if (this.#control.kind === 'up') lanes.tell(lanes.laneOf(link), { kind: 'want', peer: this.name, link });
  }

  /** What a link goes over; '' when it is not known. */
  wireOf(link: number): string {
    return this.#wires.get(link) ?? '';
  }

  linkChanged(link: number, { state, reason, wire }: PeerLink & { readonly wire: string }): void {
    this.#links.set(link, { state, reason });
    this.#wires.set(link, wire);
    publishLink({ peer: this.name, link, lane: this.#parts.lanes.laneOf(link), state, wire, reason });
    this.#update();
  }

  // Listeners on its host.

  listenersChanged(added: readonly IpEndpoint[], removed: readonly IpEndpoint[]): void {
    this.#tellRoutes(added.map(formatIpEndpoint), removed.map(formatIpEndpoint));
    for (const endpoint of removed) {
      const key = formatIpEndpoint(endpoint);
      const listener = this.#listeners.get(key);
      this.#listeners.delete(key);
      if (listener?.isRouted === true) this.#routedCount--;
      if (listener?.isRouted === true && this.#phase.kind === 'ready') this.#withdraw([listener]);
    }
    const fresh = added.map((endpoint) => ({ endpoint, isRouted: false }));
    for (const listener of fresh) this.#listeners.set(formatIpEndpoint(listener.endpoint), listener);
    if (fresh.length > 0) void this.#route(fresh);
  }

  /** Those of its listeners whose programs have the library of direct connections. */
  libraryChanged(added: readonly IpEndpoint[], removed: readonly IpEndpoint[]): void {
    const { announcements } = this.#parts;
    for (const endpoint of removed) announcements.setLibrary(endpoint, this.#number, false);
    if (this.whyNeverDirect !== '') return;
    for (const endpoint of added) announcements.setLibrary(endpoint, this.#number, true);
  }

  /** Why no connection with its host becomes direct; '' when they may. */
  get whyNeverDirect(): string {
    const [here, there] = [this.#parts.ringBytes, this.#ringBytes];
    if (there === undefined) return `peer ${this.name} has no direct connections`;
    return here === there ? '' : `direct.ringBytes is ${here} here and ${there} at peer ${this.name}`;
  }

  /** It is no peer any more: its streams end, its listeners are withdrawn. */
  remove(reason: string): void {
    this[Symbol.dispose]();
    this.#control = { kind: 'down', reason };
    this.#update();
    this.#tellRoutes([], [...this.#listeners.keys()]);
    this.#listeners.clear();
    this.#routedCount = 0;
    this.#parts.lanes.tellAll({ kind: 'peerGone', peer: this.name, reason });
  }

  [Symbol.dispose](): void {
    this.#deathProbe.stop();
  }

  /** The only place where the state changes. */
  #update(): void {
    const before = this.#phase;
    const phase = phaseOf(this.#control, [...this.#links.values()]);
    this.#phase = phase;
    if (phase.kind === before.kind) return;
    this.#sinceMs = Date.now();
    // A peer that could not be reached so far is no news.
    if (before.kind !== 'waiting' || phase.kind !== 'down') {
      const address = formatHostPort(this.#place);
      publishPeer({ peer: this.name, address, state: stateOfPhase[phase.kind], reason: phase.reason });
    }
    if (phase.kind === 'ready') this.#announce(this.#routed());
    else if (before.kind === 'ready') this.#withdraw(this.#routed());
  }

  /** No connection may come to a lane that does not know yet where to carry it. */
  async #route(listeners: readonly Listener[]): Promise<void> {
    const { lanes, knocks } = this.#parts;
    await lanes.settled();
    const asked = listeners.map(({ endpoint }) => knocks.asked(endpoint));
    // What came together is announced together, unless a packet filter holds some of it up.
    const waiting = asked.filter((one) => one !== undefined);
    if (waiting.length > 0) await Promise.race([Promise.all(waiting), sleep(TOGETHER_MS, undefined, { ref: false })]);
    for (const [index, listener] of listeners.entries()) {
      const held = asked[index];
      if (held === undefined) this.#setRouted(listener);
      else void held.then(() => this.#setRouted(listener));
    }
  }

  #setRouted(listener: Listener): void {
    if (this.#listeners.get(formatIpEndpoint(listener.endpoint)) !== listener) return;
    listener.isRouted = true;
    this.#routedCount++;
    if (this.#phase.kind === 'ready') this.#announce([listener]);
  }

  #routed(): readonly Listener[] {
    return Array.from(this.#listeners.values()).filter(({ isRouted }) => isRouted);
  }

  #tellRoutes(added: readonly string[], removed: readonly string[]): void {
    this.#parts.lanes.tellAll({ kind: 'routes', peer: this.name, added, removed });
  }

  #announce(listeners: readonly Listener[]): void {
    for (const { endpoint } of listeners) this.#parts.announcements.add(endpoint, this.#number);
  }

  #withdraw(listeners: readonly Listener[]): void {
    for (const { endpoint } of listeners) this.#parts.announcements.remove(endpoint);
  }
}
