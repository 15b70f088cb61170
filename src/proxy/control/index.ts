// The control connection between two daemons: who is there, what listens where, and what their lanes have to agree on.

export { ControlPlane, isDialerOf } from './control-plane.ts';
export type { ControlPeer, ControlSecurity, PeerConnection, PeerHello } from './control-spec.ts';
export { makeNonce as makeIncarnation } from './handshake.ts';
