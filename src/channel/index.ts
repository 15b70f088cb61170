// The channel: two rings and an index between two lanes, over any device.

export { LEAST_WINDOW_BYTES } from './credits.ts';
export { checkGeometry, type Geometry, HEADER_BYTES, slotsFor } from './layout.ts';
export type { Link } from './link.ts';
export { LaneParts } from './parts.ts';
export { Session, type SessionEvents, type SessionOptions, type SessionState } from './session.ts';
export type { Stream, StreamAbout } from './stream.ts';
