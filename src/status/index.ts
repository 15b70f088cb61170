// The status of a daemon and of a backend as plain data, and the events on their diagnostics
// channels.

export type { BackendStatus, GuestLimits, GuestReport, GuestStatus, SessionCounts } from './backend-status.ts';
export type {
  ConnectionMode,
  ConnectionStatus,
  DaemonStatus,
  DirectStatus,
  LaneStatus,
  LinkState,
  LinkStatus,
  PeerState,
  PeerStatus,
  StatusSource,
} from './daemon-status.ts';
export {
  type ConnectionEvent,
  type DaemonEvent,
  type DaemonEvents,
  type EventKind,
  eventKindNames,
  isConnectionHeard,
  type LinkEvent,
  type PeerEvent,
  publishConnection,
  publishDaemon,
  publishError,
  publishLink,
  publishPeer,
  subscribe,
} from './events.ts';
