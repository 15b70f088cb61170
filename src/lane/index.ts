// A lane: one worker thread of the daemon with its links and streams.

export { LaneThread } from './lane-thread.ts';
export type { FromLane, LaneConnections, LaneReport, MirroredStatus, ToLane, WatchdogSettings } from './messages.ts';
