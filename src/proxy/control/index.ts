// The control connection between two daemons: who is there, what listens where, and what their lanes have to agree on.

export { AnnouncedTable, type AnnouncementSink, MAX_ENDPOINTS_PER_PEER } from './announced-table.ts';
export { ControlPlane } from './control-plane.ts';
export { MAX_ENDPOINTS_PER_LINE, MAX_LANES, MAX_LINK_BODY_BYTES, MAX_LINKS } from './control-protocol.ts';
export type {
  ControlAddress,
  ControlHandlers,
  ControlPeer,
  ControlPeerView,
  ControlPlaneOptions,
  ControlSecurity,
  ControlState,
  PeerHello,
} from './control-spec.ts';
export { makeNonce as makeIncarnation } from './handshake.ts';
