// Carries steered connections to where they were going, over plain TCP.

export { Announcements, type AnnouncementsOptions, DEFAULT_CONTROL_PORT } from './announcements.ts';
export { type Daemon, type DaemonOptions, DEFAULT_RELAY_PORT, startDaemon } from './daemon.ts';
export type { PeerSpec } from './peer-call.ts';
export { Relay, type RelayConnection, type RelayCounters, type RelayOptions, type RelaySteering } from './relay.ts';
