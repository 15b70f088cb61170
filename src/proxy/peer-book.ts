// What the daemon knows of its peers: whether their links carry, and what listens on their hosts. A destination is announced
// to the kernel only while the peer that told of it is ready to carry.

import type { SessionState } from '../channel/index.ts';
import type { FromLane, LaneThread } from '../lane/index.ts';
import type { PeerState } from '../status/index.ts';
import { publishLink, publishPeer } from '../status/index.ts';
import { formatIpEndpoint, type IpEndpoint } from '../steering/index.ts';
import type { ControlPeerView, PeerHello } from './control/index.ts';

/** Where announcements go. */
export interface AnnouncementSink {
  announce(endpoint: IpEndpoint, peer: number): void;
  withdraw(endpoint: IpEndpoint): void;
}

interface LinkView {
  state: SessionState;
  reason: string;
  wire: string;
}

interface Peer {
  readonly number: number;
  readonly listeners: Map<string, IpEndpoint>;
  readonly links: Map<number, LinkView>;
  incarnation: string;
  isUp: boolean;
  /** Why it is not. */
  downReason: string;
  isReady: boolean;
  /** Of the last time that it was looked at, to tell changes. */
  state: PeerState;
  sinceMs: number;
}

export class PeerBook {
  readonly #lanes: readonly LaneThread[];
  readonly #sink: AnnouncementSink;
  readonly #addressOf: (peer: string) => string;
  readonly #peers = new Map<string, Peer>();
  /** How many ready peers announced it. */
  readonly #announced = new Map<string, number>();
  #nextNumber = 1;
  #changes: Promise<void> = Promise.resolve();

  constructor(lanes: readonly LaneThread[], sink: AnnouncementSink, addressOf: (peer: string) => string) {
    this.#lanes = lanes;
    this.#sink = sink;
    this.#addressOf = addressOf;
  }

  /** The control connection is up, and both sides have said who they are. */
  up(name: string, hello: PeerHello, isDialer: boolean): void {
    const peer = this.#peer(name);
    const isSame = peer.incarnation === hello.incarnation;
    peer.incarnation = hello.incarnation;
    peer.isUp = true;
    const count = Math.max(this.#lanes.length, hello.lanes);
    if (!isSame) peer.links.clear();
    for (const lane of this.#lanes) {
      const links = Array.from({ length: count }, (_, link) => link).filter((link) => this.#laneOf(link) === lane);
      for (const link of links) {
        if (!peer.links.has(link)) peer.links.set(link, { state: 'connecting', reason: '', wire: '' });
      }
      lane.tell({ kind: 'peerUp', peer: name, isDialer, isSame, links });
    }
    this.#look(name, peer);
  }

  down(name: string, reason: string): void {
    const peer = this.#peer(name);
    peer.isUp = false;
    peer.downReason = reason;
    for (const lane of this.#lanes) lane.tell({ kind: 'peerDown', peer: name });
    this.#look(name, peer);
  }

  /** Its daemon is known to be dead: nobody will go on with what was carried. */
  dead(name: string): void {
    if (this.#peers.get(name)?.isUp !== false) return;
    for (const lane of this.#lanes) lane.tell({ kind: 'peerDead', peer: name });
  }

  /** It is no peer any more. */
  gone(name: string, reason: string): void {
    const peer = this.#peers.get(name);
    if (peer === undefined) return;
    peer.isUp = false;
    this.#look(name, peer);
    for (const lane of this.#lanes) {
      lane.tell({ kind: 'routes', peer: name, added: [], removed: [...peer.listeners.keys()] });
      lane.tell({ kind: 'peerGone', peer: name, reason });
    }
    this.#peers.delete(name);
  }

  hearLink(name: string, link: number, body: object): void {
    this.#laneOf(link)?.tell({ kind: 'link', peer: name, link, body });
  }

  /** One change after the other: each waits for the lanes. */
  hearListeners(name: string, added: readonly IpEndpoint[], removed: readonly IpEndpoint[]): void {
    this.#changes = this.#changes.then(() => this.#changeListeners(name, added, removed));
  }

  async #changeListeners(name: string, added: readonly IpEndpoint[], removed: readonly IpEndpoint[]): Promise<void> {
    const peer = this.#peer(name);
    const words = (endpoints: readonly IpEndpoint[]): string[] => endpoints.map(formatIpEndpoint);
    for (const lane of this.#lanes) {
      lane.tell({ kind: 'routes', peer: name, added: words(added), removed: words(removed) });
    }
    for (const endpoint of removed) {
      const key = formatIpEndpoint(endpoint);
      if (peer.listeners.delete(key) && peer.isReady) this.#withdraw(key, endpoint);
    }
    if (added.length === 0) return;
    // No connection may come to a lane that does not know where to.
    await this.#settled();
    for (const endpoint of added) {
      const key = formatIpEndpoint(endpoint);
      if (peer.listeners.has(key)) continue;
      peer.listeners.set(key, endpoint);
      if (peer.isReady) this.#announce(key, endpoint, peer.number);
    }
  }

  linkState(message: Extract<FromLane, { kind: 'state' }>): void {
    const { peer: name, link, state, reason, wire } = message;
    const peer = this.#peers.get(name);
    if (peer === undefined) return;
    peer.links.set(link, { state, reason, wire });
    publishLink({ peer: name, link, lane: link % this.#lanes.length, state, wire, reason });
    this.#look(name, peer);
  }

  /** Whether it carries, and why not. */
  stateOf(name: string, view: ControlPeerView | undefined): { state: PeerState; reason: string; sinceMs: number } {
    const peer = this.#peers.get(name);
    const sinceMs = peer?.sinceMs ?? view?.sinceMs ?? 0;
    if (peer?.isReady === true) return { state: 'up', reason: '', sinceMs };
    if (view?.state !== 'up') return { state: view?.state ?? 'down', reason: view?.reason ?? '', sinceMs };
    for (const { state, reason } of peer?.links.values() ?? []) {
      if (state === 'recovering') return { state, reason, sinceMs };
      if (state !== 'up') return { state: 'connecting', reason, sinceMs };
    }
    return { state: 'connecting', reason: '', sinceMs };
  }

  listenersOf(name: string): number {
    return this.#peers.get(name)?.listeners.size ?? 0;
  }

  #peer(name: string): Peer {
    let peer = this.#peers.get(name);
    if (peer === undefined) {
      peer = {
        number: this.#nextNumber++,
        listeners: new Map(),
        links: new Map(),
        incarnation: '',
        isUp: false,
        downReason: '',
        isReady: false,
        state: 'down',
        sinceMs: Date.now(),
      };
      this.#peers.set(name, peer);
    }
    return peer;
  }

  #laneOf(link: number): LaneThread | undefined {
    return this.#lanes[link % this.#lanes.length];
  }

  async #settled(): Promise<void> {
    await Promise.all(this.#lanes.map((lane) => lane.settled()));
  }

  /** Something changed: what the peer told is announced, or withdrawn. */
  #look(name: string, peer: Peer): void {
    const links = [...peer.links.values()];
    const isReady = peer.isUp && links.length > 0 && links.every(({ state }) => state === 'up');
    const isRecovering = links.some((link) => link.state === 'recovering');
    const state = isReady ? 'up' : !peer.isUp ? 'down' : isRecovering ? 'recovering' : 'connecting';
    if (state !== peer.state) {
      peer.state = state;
      peer.sinceMs = Date.now();
      const reason = peer.isUp ? (links.find((link) => link.state !== 'up')?.reason ?? '') : peer.downReason;
      publishPeer({ peer: name, address: this.#addressOf(name), state, reason });
    }
    if (isReady === peer.isReady) return;
    peer.isReady = isReady;
    for (const [key, endpoint] of peer.listeners) {
      if (isReady) this.#announce(key, endpoint, peer.number);
      else this.#withdraw(key, endpoint);
    }
  }

  #announce(key: string, endpoint: IpEndpoint, number: number): void {
    const count = this.#announced.get(key) ?? 0;
    this.#announced.set(key, count + 1);
    if (count === 0) this.#sink.announce(endpoint, number);
  }

  #withdraw(key: string, endpoint: IpEndpoint): void {
    const count = this.#announced.get(key) ?? 0;
    if (count > 1) {
      this.#announced.set(key, count - 1);
      return;
    }
    this.#announced.delete(key);
    if (count === 1) this.#sink.withdraw(endpoint);
  }
}
