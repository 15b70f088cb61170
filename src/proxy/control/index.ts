// The control connection between two daemons: who is there, what listens where, and what their lanes have to agree on.

export { AnnouncedTable, type AnnouncementSink, MAX_ENDPOINTS_PER_PEER } from './announced-table.ts';
export { ControlPlane, isDialerOf } from './control-plane.ts';
export { MAX_ENDPOINTS_PER_LINE } from './control-protocol.ts';
export type { ControlPeer, ControlSecurity, PeerConnection, PeerHello } from './control-spec.ts';
export { makeNonce as makeIncarnation } from './handshake.ts';
