// What the control plane is made from and what it tells: plain data, and the handlers of whoever owns it.

import type { MillraceError } from '../../errors.ts';
import type { HeartbeatSpec } from '../../json-lines/index.ts';
import type { IpEndpoint } from '../../steering/index.ts';
import type { ControlSecurity } from '../../tls/index.ts';

export type { HeartbeatSpec } from '../../json-lines/index.ts';
export type { ControlSecurity } from '../../tls/index.ts';

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
  /** Random per start of a daemon: another one means that the peer forgot everything. */
  readonly incarnation: string;
  readonly lanes: number;
  /** Wires that the daemon can speak, the best first. */
  readonly wires: readonly string[];
}

export interface ControlHandlers {
  /** The connection is up and both hellos are exchanged. `isDialer`: this side dialed, its name is the smaller one. */
  onUp(peer: string, hello: PeerHello, isDialer: boolean): void;
  onDown(peer: string, reason: string): void;
  /** Everything is removed before `onDown`. */
  onListeners(peer: string, added: readonly IpEndpoint[], removed: readonly IpEndpoint[]): void;
  /** `body` is an object of limited size and depth; what is in it was not looked at. */
  onLink(peer: string, link: number, body: object): void;
  onError(error: MillraceError): void;
}

export interface ControlPlaneOptions extends Partial<HeartbeatSpec> {
  /** What the peers call this daemon. */
  readonly name: string;
  /** Where peers call. Port 0: any. */
  readonly listen: readonly ControlAddress[];
  readonly security: ControlSecurity;
  readonly hello: Omit<PeerHello, 'name'>;
  readonly peers: readonly ControlPeer[];
  readonly handlers: ControlHandlers;
}

/** `connecting`: not heard of yet. `down`: it was up, or calling it failed; `reason` says why. */
export type ControlState = 'up' | 'connecting' | 'down';

export interface ControlPeerView {
  readonly peer: ControlPeer;
  readonly state: ControlState;
  /** Why it is not up; '' when it is. */
  readonly reason: string;
  /** When the state changed, ms since the epoch. */
  readonly sinceMs: number;
  readonly isSecure: boolean;
  /** Number of endpoints where somebody listens on the peer's host. */
  readonly listeners: number;
  /** Of the last heartbeat; -1 before the first. */
  readonly roundTripMs: number;
}
