// What two lanes say to each other to connect a link, by way of the daemons' control connection.
//
//   acceptor:  want      it needs the link: the dialer makes an offer
//   dialer:    offer     a session, new or to be resumed; the ring's geometry; a transport; how far it has read
//   acceptor:  accept    its transport, and how far it has read; or `reject` with a reason
//   dialer:    ready     it is connected: both may write
//   dialer:    unable    none of its devices led to a link; it goes on trying
//   acceptor:  broken    its transport does not work any more: the dialer offers another
//   dialer:    rest      nothing uses the link: it may end, if the acceptor does not use it either
//   acceptor:  rested    it does not, and opens no stream from now on: the dialer ends it by `closed`
//   acceptor:  busy      it does: the link stays
//   either:    closed    it has ended the session, and all streams with it

import {
  boolean,
  converted,
  hex,
  integer,
  list,
  type MessageOf,
  object,
  oneOf,
  Protocol,
  printableText,
  text,
} from '../json-lines/index.ts';
import { qpEndpoint, remoteRegion } from '../verbs/endpoint/index.ts';
import { checkGeometry, type Geometry, LAYOUT_VERSION } from './region-layout.ts';

const MAX_DATA_QPS = 16;
const MAX_SLOTS = 2 ** 24;

const uint32 = integer(0, 0xffff_ffff);
const attempt = uint32;
const reason = printableText();
const read = object({ position: uint32, sequence: uint32 });
/** The index queue pair first. */
const transport = object({ qps: list(qpEndpoint, 2, MAX_DATA_QPS + 1), region: remoteRegion });
const geometry = converted(
  object({ slotBytes: integer(0, 4096), slots: integer(0, MAX_SLOTS), maxRecordSlots: integer(0, MAX_SLOTS) }),
  (given): Geometry => {
    checkGeometry(given);
    return given;
  },
  (given) => given,
);

export const linkProtocol = new Protocol('link', 3, {
  offer: {
    /** Of the rings. First, since another layout may well have other fields. */
    layout: oneOf(LAYOUT_VERSION),
    attempt,
    session: hex(32),
    /** The session is to go on; otherwise it is new. */
    isResumed: boolean(),
    wire: text(/^[a-zA-Z0-9]{1,16}$/, 'the name of a wire'),
    /** What machine this is, for wires that need the same one; '' where nobody said. */
    place: text(/^[0-9a-f]{0,64}$/, 'up to 64 hexadecimal digits'),
    geometry,
    transport,
    read,
  },
  accept: { attempt, transport, read },
  /** `session`: start anew. `device`: try another. `busy`: try again later. */
  reject: { attempt, code: oneOf('session', 'device', 'busy'), reason },
  ready: { attempt },
  want: {},
  unable: { reason },
  broken: { attempt, reason },
  rest: { attempt },
  rested: { attempt },
  busy: { attempt },
  closed: { attempt, reason },
});

export type LinkMessage = MessageOf<typeof linkProtocol>;
export type Offer = MessageOf<typeof linkProtocol, 'offer'>;
export type Accept = MessageOf<typeof linkProtocol, 'accept'>;
