// What a daemon and a backend tell of themselves: plain data, and the events on their diagnostics channels.

export type { BackendStatus, GuestLimits, GuestReport, GuestStatus, SessionCounts } from './backend-status.ts';
export type {
  ConnectionMode,
  ConnectionStatus,
  DaemonStatus,
  LaneStatus,
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
  publishLink,
  publishPeer,
  publishTrouble,
  subscribe,
  type TroubleEvent,
} from './events.ts';
