// Both sides of admission in one daemon: it knocks for the programs of its host, and answers the
// knocks of its peers. Where peers are believed without packets, it answers only.

import type { ToLane } from '../../lane/index.ts';
import { type Fd, netnsCookie } from '../../native/index.ts';
import { type Admissions, formatIpEndpoint, type IpEndpoint, type Passage } from '../../steering/index.ts';
import type { GateMessage, KnockMessage } from '../control/index.ts';
import { Gates } from './gates.ts';
import { Knocker } from './knocker.ts';

interface AdmissionOptions {
  readonly asksPackets: boolean;
  /** So many destinations that nobody uses are asked about. */
  readonly idle: number;
  readonly admissions: Admissions;
  readonly namespaces: {
    isServed(netns: number): boolean;
    fdOf(netns: number): Fd | undefined;
  };
  readonly peers: {
    /** The peer whose host an endpoint, as text, is at. */
    ownerOf(to: string): string | undefined;
    reached(to: IpEndpoint, peer: string | undefined): void;
  };
  readonly lanes: { tellAll(message: ToLane): void; settled(): Promise<void> };
  readonly control: {
    tellAdmission(peer: string, message: KnockMessage | GateMessage): boolean;
    refuse(peer: string, reason: string): void;
  };
  /** Why the peer may not reach a server; empty when it may. */
  readonly whyNot: (peer: string, server: IpEndpoint) => string;
}

export class Admission implements Disposable {
  readonly #gates: Gates;
  readonly #knocker: Knocker | null;

  constructor({ asksPackets, idle, admissions, namespaces, peers, lanes, control, whyNot }: AdmissionOptions) {
    const send = (peer: string, message: KnockMessage | GateMessage): boolean => control.tellAdmission(peer, message);
    const refuse = (peer: string, reason: string): void => control.refuse(peer, reason);
    this.#gates = new Gates({
      admissions,
      isServed: (netns) => namespaces.isServed(netns),
      whyNot,
      tellLanes: (message) => lanes.tellAll(message),
      settled: () => lanes.settled(),
      send,
      refuse,
    });
    this.#knocker = asksPackets
      ? new Knocker({
          admissions,
          netns: netnsCookie(),
          namespaceOf: (netns) => namespaces.fdOf(netns),
          idle,
          peerOf: (to) => peers.ownerOf(formatIpEndpoint(to)),
          send,
          refuse,
          onReached: (to, peer) => peers.reached(to, peer),
        })
      : null;
  }

  /** A peer listens there. */
  announced(to: IpEndpoint): void {
    this.#knocker?.announced(to);
  }

  withdrawn(to: IpEndpoint): void {
    this.#knocker?.withdrawn(to);
  }

  /**
   * Resolves when it is known whether packets of this host get there; undefined when it is, or
   * nobody asks.
   */
  asked(to: IpEndpoint): Promise<void> | undefined {
    return this.#knocker?.asked(to);
  }

  /** A connect there was left to plain TCP: the next one need not be. */
  wanted(passage: Passage): void {
    this.#knocker?.wanted(passage);
  }

  /** Why packets do not get there; empty when they do, or when nobody has asked. */
  whyNot(to: IpEndpoint): string {
    return this.#knocker?.whyNot(to) ?? '';
  }

  hearKnock(peer: string, message: KnockMessage): void {
    this.#gates.hear(peer, message);
  }

  hearGate(peer: string, message: GateMessage): void {
    this.#knocker?.hear(peer, message);
  }

  peerDown(peer: string): void {
    this.#knocker?.peerDown(peer);
    this.#gates.peerDown(peer);
  }

  [Symbol.dispose](): void {
    this.#knocker?.[Symbol.dispose]();
    this.#gates[Symbol.dispose]();
  }
}
