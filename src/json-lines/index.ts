// Conversations in JSON lines: framing, heartbeat, hang-up.

export { allClosed, hangUp } from './hang-up.ts';
export { Heartbeat, type HeartbeatSpec } from './heartbeat.ts';
export { type LineOptions, readLine, writeLine } from './line.ts';
export { LineSplitter } from './line-splitter.ts';
