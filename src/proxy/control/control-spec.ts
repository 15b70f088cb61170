// The options of a control plane, and the handlers of its owner.

import type { MillraceError } from '../../errors.ts';
import type { HeartbeatSpec } from '../../json-lines/index.ts';
import type { IpEndpoint } from '../../steering/index.ts';
import type { ControlSecurity } from '../../tls/index.ts';
import type { DirectWord, GateMessage, KnockMessage } from './control-protocol.ts';

export type { HeartbeatSpec } from '../../json-lines/index.ts';
export type { ControlSecurity } from '../../tls/index.ts';

/** A peer that announces more listeners than this breaks the protocol. */
export const MAX_ENDPOINTS_PER_PEER = 16_384;

export interface ControlAddress {
  readonly host: string;
  readonly port: number;
}

/** A daemon on another host, and where it listens for its peers. */
export interface ControlPeer extends ControlAddress {
  readonly name: string;
  readonly source: 'config' | 'etcd';
}

export interface PeerHello {
  readonly name: string;
  /**
   * A random number for each start of a daemon: when it changes, the peer has forgotten everything.
   */
  readonly incarnation: string;
  readonly lanes: number;
  /** Wires that the daemon supports, the best first. */
  readonly wires: readonly string[];
  /** Whether connections are carried only where packets get to. */
  readonly admission: 'packets' | 'peers';
  /** Of the rings of direct connections; absent where there are none. */
  readonly ringBytes?: number | undefined;
}

/** The control connection with a peer that has proven who it is. */
export interface PeerConnection {
  /** This side dialed: its name is the smaller one. */
  readonly isDialer: boolean;
  readonly isSecure: boolean;
  /** Of the last heartbeat; -1 before the first. */
  readonly roundTripMs: number;
  /** False when the connection has ended. Throws a UsageError when the message is too large. */
  sendLink(link: number, body: object): boolean;
  /**
   * Ends it because of a protocol error of the peer, which is told so and may connect again later.
   */
  refuse(reason: string): void;
}

/** What the owner of a control plane is told. */
export interface ControlHandlers {
  /** The connection is up: both hellos are exchanged and believed. */
  onUp(peer: string, connection: PeerConnection, hello: PeerHello): void;
  onDown(peer: string, reason: string): void;
  /** The peer's certificate was revoked and its connection has ended: its streams must end, too. */
  onRevoked(peer: string, reason: string): void;
  /** Dialing the peer failed; it is dialed again. */
  onDialFailed(peer: string, reason: string): void;
  /** The addresses of its host, by its own account. Call `known` once they count everywhere. */
  onAddresses(peer: string, hosts: readonly string[], known: () => void): void;
  /** Added ones are new, removed ones were there. All are removed before `onDown`. */
  onListeners(peer: string, added: readonly IpEndpoint[], removed: readonly IpEndpoint[]): void;
  /** The same, of those of its listeners whose programs have the library of direct connections. */
  onLibraryListeners(peer: string, added: readonly IpEndpoint[], removed: readonly IpEndpoint[]): void;
  /** The peer knocks at servers of this host. */
  onKnock(peer: string, message: KnockMessage): void;
  /** The peer answers knocks of this host. */
  onGate(peer: string, message: GateMessage): void;
  /** About direct connections between the two hosts. */
  onDirect(peer: string, word: DirectWord): void;
  /** `body` is an object of limited size and depth; its contents are not checked. */
  onLink(peer: string, link: number, body: object): void;
  onError(error: MillraceError): void;
}

export interface ControlPlaneOptions extends Partial<HeartbeatSpec> {
  /** This node's name. */
  readonly name: string;
  /** Where peers connect to. Port 0: any free one. */
  readonly listen: readonly ControlAddress[];
  readonly security: ControlSecurity;
  readonly hello: Omit<PeerHello, 'name'>;
  readonly peers: readonly ControlPeer[];
  readonly handlers: ControlHandlers;
}
