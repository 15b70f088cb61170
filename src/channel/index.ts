// The channel: two rings and an index between two lanes, over any device.

export { CalledSession } from './accepting-session.ts';
export { LEAST_WINDOW_BYTES } from './credits.ts';
export { CallingSession } from './dialing-session.ts';
export { checkGeometry, type Geometry, HEADER_BYTES, slotsFor } from './layout.ts';
export type { Link } from './link.ts';
export { LaneParts } from './link-context.ts';
export type { Session, SessionEvents, SessionOptions, SessionState } from './session.ts';
export type { Stream, StreamAbout } from './stream.ts';
