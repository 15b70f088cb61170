// The control connection between two daemons: identity, listeners, and messages between their
// lanes.

export { ControlPlane, isDialerOf } from './control-plane.ts';
export type { GateMessage, KnockMessage } from './control-protocol.ts';
export type { ControlPeer, ControlSecurity, PeerConnection, PeerHello } from './control-spec.ts';
export { ErrorThrottle } from './error-throttle.ts';
export { makeNonce as makeIncarnation } from './handshake.ts';
