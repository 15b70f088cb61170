// The channel: two rings and an index between two lanes, over any device.

export { AcceptingSession } from './accepting-session.ts';
export { DialingSession } from './dialing-session.ts';
export type { DirectStream } from './direct-stream.ts';
export type { Leg, Link } from './link.ts';
export { LinkContext } from './link-context.ts';
export { MirroredSlot } from './mirrored-slot.ts';
export { HEADER_BYTES, slotsFor } from './record-layout.ts';
export type { Session, SessionHost, SessionOptions, SessionState } from './session.ts';
export type { Stream, StreamInfo } from './stream.ts';
