// What listens on this host: told to the lanes and to each peer, as far as the peer is accepted.

import type { ToLane } from '../lane/index.ts';
import { formatIpEndpoint, type IpEndpoint, type Listener } from '../steering/index.ts';
import type { Acceptance, Decision } from './acceptance.ts';

/**
 * For so long after a reload lanes still take what peers were told before: a client may be on its
 * way, and would be refused where plain TCP is not.
 */
const GRACE_MS = 1000;

const ENDING = 'its daemon is about to end';

interface Hearers {
  /** Absent where they need not know. */
  readonly lanes?: { tellAll(message: ToLane): void };
  readonly control: { setListeners(listenersFor: ListenersFor, libraryFor: ListenersFor): void };
}

type ListenersFor = (peer: string) => readonly IpEndpoint[];

/** Peers that are decided alike, and what they may reach. */
interface AcceptedList {
  readonly peers: readonly string[];
  readonly listeners: readonly Listener[];
}

/** One list as lanes know it. */
interface LaneList {
  readonly peers: readonly string[];
  readonly servers: Map<string, number>;
}

const noEndpoints: readonly IpEndpoint[] = [];

export class HostListeners implements Disposable {
  readonly #hearers: Hearers;
  #acceptance: Acceptance;
  /** Of the config before, while it still counts for lanes. */
  #before: Acceptance | undefined;
  #listeners: readonly Listener[] = [];
  #byEndpoint: ReadonlyMap<string, Listener> = new Map();
  #laneLists: readonly LaneList[] = [];
  /** Peers that are decided alike, by how many acceptances decide. */
  readonly #groups = new Map<number, readonly (readonly string[])[]>();
  #peers: readonly string[] = [];
  /** Peers were told that nothing listens here any more, for good or for now; '': they were not. */
  #whyWithdrawn = '';
  #timer: NodeJS.Timeout | undefined;

  constructor(acceptance: Acceptance, hearers: Hearers) {
    this.#acceptance = acceptance;
    this.#hearers = hearers;
  }

  get needsCommands(): boolean {
    return this.#acceptance.needsCommands;
  }

  /** From now on. Call it before a peer can connect. */
  setPeers(names: readonly string[]): void {
    if (names.length === this.#peers.length && names.every((name, index) => name === this.#peers[index])) return;
    this.#peers = names;
    this.#tell(true);
  }

  setListeners(listeners: readonly Listener[]): void {
    const byEndpoint = new Map(listeners.map((listener) => [formatIpEndpoint(listener.endpoint), listener]));
    if (isSame(byEndpoint, this.#byEndpoint)) return;
    this.#listeners = listeners;
    this.#byEndpoint = byEndpoint;
    this.#tell(false);
  }

  setAcceptance(acceptance: Acceptance): void {
    this.#before = this.#acceptance;
    this.#acceptance = acceptance;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#before = undefined;
      this.#tellLanes(true);
    }, GRACE_MS);
    this.#tell(true);
  }

  /** New connections of peers go by plain TCP from now on; lanes still take those on their way. */
  withdraw(): void {
    this.#whyWithdrawn = ENDING;
    this.#tell(false);
  }

  /** The same for as long as the daemon has no room for more. */
  setRoom(hasRoom: boolean): void {
    if (this.#whyWithdrawn === ENDING) return;
    this.#whyWithdrawn = hasRoom ? '' : 'its daemon has few descriptors left';
    this.#tell(false);
  }

  /** Whether a peer may reach an endpoint, and why, for people. */
  explain(peer: string, endpoint: string): string {
    const listener = this.#byEndpoint.get(endpoint);
    if (listener === undefined) return `nothing of this host listens at ${endpoint} for other hosts`;
    const { isAccepted, reason } = decide(this.#acceptance, peer, listener);
    const commands = listener.commands.map((command) => (command === '' ? 'command not known' : command)).join(', ');
    const place = this.needsCommands ? `${endpoint} (${commands})` : endpoint;
    return `peer ${peer} is ${isAccepted ? '' : 'not '}accepted at ${place}: ${reason}`;
  }

  /** Why a peer may not reach a server; empty when it may. */
  whyNot(peer: string, endpoint: IpEndpoint): string {
    if (this.#whyWithdrawn !== '') return this.#whyWithdrawn;
    // One that has just begun to listen is not known yet.
    const unknown: Listener = { endpoint, netns: 0, commands: [''], hasLibrary: false };
    const listener = this.#byEndpoint.get(formatIpEndpoint(endpoint)) ?? unknown;
    const { isAccepted, reason } = decide(this.#acceptance, peer, listener);
    return isAccepted ? '' : reason;
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
  }

  /**
   * Lanes first: a peer may open a stream as soon as it is told. `isNew`: there are other peers, or
   * they are decided otherwise.
   */
  #tell(isNew: boolean): void {
    if (isNew) this.#groups.clear();
    this.#tellLanes(isNew);
    const accepted = this.#whyWithdrawn !== '' ? [] : this.#accepted([this.#acceptance]);
    // Peers that are decided alike get the same lists, so that they are told the same lines.
    const byPeer = new Map<string, { readonly all: readonly IpEndpoint[]; readonly library: readonly IpEndpoint[] }>();
    for (const { peers, listeners } of accepted) {
      const all = listeners.map(({ endpoint }) => endpoint);
      const library = listeners.flatMap(({ endpoint, hasLibrary }) => (hasLibrary ? [endpoint] : noEndpoints));
      for (const peer of peers) byPeer.set(peer, { all, library });
    }
    this.#hearers.control.setListeners(
      (peer) => byPeer.get(peer)?.all ?? noEndpoints,
      (peer) => byPeer.get(peer)?.library ?? noEndpoints,
    );
  }

  /** What has changed; or all, where peers have other lists than before. */
  #tellLanes(isNew: boolean): void {
    const { lanes } = this.#hearers;
    if (lanes === undefined) return;
    const accepted = this.#accepted(this.#before === undefined ? [this.#acceptance] : [this.#acceptance, this.#before]);
    const lists = accepted.map(({ peers, listeners }) => ({
      peers,
      servers: new Map(listeners.map(({ endpoint, netns }) => [formatIpEndpoint(endpoint), netns])),
    }));
    const before = this.#laneLists;
    this.#laneLists = lists;
    if (isNew) {
      lanes.tellAll({
        kind: 'listeners',
        lists: lists.map(({ peers, servers }) => ({ peers, servers: Array.from(servers, toServer) })),
      });
      return;
    }
    for (const [list, { servers }] of lists.entries()) {
      const old = before[list]?.servers ?? new Map<string, number>();
      const added = Array.from(servers).filter(([endpoint, netns]) => old.get(endpoint) !== netns);
      const removed = Array.from(old.keys()).filter((endpoint) => !servers.has(endpoint));
      if (added.length + removed.length === 0) continue;
      lanes.tellAll({ kind: 'listenersChanged', list, added: added.map(toServer), removed });
    }
  }

  /** Found once, until there are other peers or acceptances. */
  #groupsBy(acceptances: readonly Acceptance[]): readonly (readonly string[])[] {
    const keyOf = (peer: string): string => acceptances.map((one) => one.keyOf(peer)).join(';');
    let groups = this.#groups.get(acceptances.length);
    if (groups === undefined) {
      groups = [...Map.groupBy(this.#peers, keyOf).values()];
      this.#groups.set(acceptances.length, groups);
    }
    return groups;
  }

  /** What one of the acceptances lets peers reach; peers that are decided alike share a list. */
  #accepted(acceptances: readonly Acceptance[]): readonly AcceptedList[] {
    return this.#groupsBy(acceptances).map((peers) => {
      const [peer = ''] = peers;
      const isReached = (listener: Listener): boolean =>
        acceptances.some((one) => decide(one, peer, listener).isAccepted);
      return { peers, listeners: this.#listeners.filter(isReached) };
    });
  }
}

function toServer([endpoint, netns]: readonly [string, number]): { readonly endpoint: string; readonly netns: number } {
  return { endpoint, netns };
}

/** Whether nothing has changed that anybody is told of. */
function isSame(left: ReadonlyMap<string, Listener>, right: ReadonlyMap<string, Listener>): boolean {
  if (left.size !== right.size) return false;
  for (const [key, { netns, commands, hasLibrary }] of left) {
    const other = right.get(key);
    if (other === undefined || other.netns !== netns || other.hasLibrary !== hasLibrary) return false;
    if (other.commands.length !== commands.length) return false;
    if (!commands.every((command, index) => command === other.commands[index])) return false;
  }
  return true;
}

/**
 * Which of several processes gets a connection is not known, so a peer is accepted if it is with
 * each of them.
 */
function decide(acceptance: Acceptance, peer: string, { endpoint, commands }: Listener): Decision {
  const decisions = commands.map((command) => acceptance.decide(peer, { endpoint, command }));
  return decisions.find(({ isAccepted }) => !isAccepted) ?? decisions[0];
}
