// What listens on this host: told to the lanes and to each peer, as far as the peer is accepted.

import { isDeepStrictEqual } from 'node:util';
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
  readonly lanes: { tellAll(message: ToLane): void };
  readonly control: { setListeners(listenersFor: ListenersFor, libraryFor: ListenersFor): void };
}

type ListenersFor = (peer: string) => readonly IpEndpoint[];

interface AcceptedList {
  readonly peers: readonly string[];
  readonly listeners: readonly Listener[];
}

export class HostListeners implements Disposable {
  readonly #hearers: Hearers;
  #acceptance: Acceptance;
  /** Of the config before, while it still counts for lanes. */
  #before: Acceptance | undefined;
  #listeners: readonly Listener[] = [];
  #byEndpoint: ReadonlyMap<string, Listener> = new Map();
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
    this.#peers = names;
    this.#tell();
  }

  setListeners(listeners: readonly Listener[]): void {
    if (isDeepStrictEqual(listeners, this.#listeners)) return;
    this.#listeners = listeners;
    this.#byEndpoint = new Map(listeners.map((listener) => [formatIpEndpoint(listener.endpoint), listener]));
    this.#tell();
  }

  setAcceptance(acceptance: Acceptance): void {
    this.#before = this.#acceptance;
    this.#acceptance = acceptance;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#before = undefined;
      this.#tellLanes();
    }, GRACE_MS);
    this.#tell();
  }

  /** New connections of peers go by plain TCP from now on; lanes still take those on their way. */
  withdraw(): void {
    this.#whyWithdrawn = ENDING;
    this.#tell();
  }

  /** The same for as long as the daemon has no room for more. */
  setRoom(hasRoom: boolean): void {
    if (this.#whyWithdrawn === ENDING) return;
    this.#whyWithdrawn = hasRoom ? '' : 'its daemon has few descriptors left';
    this.#tell();
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

  /** Lanes first: a peer may open a stream as soon as it is told. */
  #tell(): void {
    this.#tellLanes();
    const accepted = this.#whyWithdrawn !== '' ? [] : this.#accepted([this.#acceptance]);
    const byPeer = new Map(accepted.flatMap(({ peers, listeners }) => peers.map((peer) => [peer, listeners])));
    const of = (peer: string): readonly Listener[] => byPeer.get(peer) ?? [];
    this.#hearers.control.setListeners(
      (peer) => of(peer).map(({ endpoint }) => endpoint),
      (peer) => of(peer).flatMap(({ endpoint, hasLibrary }) => (hasLibrary ? [endpoint] : [])),
    );
  }

  #tellLanes(): void {
    const accepted = this.#accepted(this.#before === undefined ? [this.#acceptance] : [this.#acceptance, this.#before]);
    const lists = accepted.map(({ peers, listeners }) => ({
      peers,
      servers: listeners.map(({ endpoint, netns }) => ({ endpoint: formatIpEndpoint(endpoint), netns })),
    }));
    this.#hearers.lanes.tellAll({ kind: 'listeners', lists });
  }

  /** What one of the acceptances lets peers reach; peers that are decided alike share a list. */
  #accepted(acceptances: readonly Acceptance[]): readonly AcceptedList[] {
    const groups = Map.groupBy(this.#peers, (peer) => acceptances.map((one) => one.keyOf(peer)).join(';'));
    return Array.from(groups.values(), (peers) => {
      const [peer = ''] = peers;
      const isReached = (listener: Listener): boolean =>
        acceptances.some((one) => decide(one, peer, listener).isAccepted);
      return { peers, listeners: this.#listeners.filter(isReached) };
    });
  }
}

/**
 * Which of several processes gets a connection is not known, so a peer is accepted if it is with
 * each of them.
 */
function decide(acceptance: Acceptance, peer: string, { endpoint, commands }: Listener): Decision {
  const decisions = commands.map((command) => acceptance.decide(peer, { endpoint, command }));
  return decisions.find(({ isAccepted }) => !isAccepted) ?? decisions[0];
}
