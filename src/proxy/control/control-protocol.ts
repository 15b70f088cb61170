// The messages of the control connection between two daemons.
//
// The daemon with the smaller name (compared as plain strings) is the dialer; the other is the
// acceptor.
//
//   dialer:    hello                 who it is
//   acceptor:  hello with a nonce    the same of itself
//   dialer:    proof                 that nonce: the hello is not a replayed one; both are up
//   either:    addresses             all addresses of its host; after the hello, and when they change
//   either:    addressesKnown        its lanes know the addresses of that number
//   either:    announce              servers listen there; all listeners are announced after the hello
//   either:    withdraw              no server listens there any more
//   either:    announceLibrary       those there are programs with the library of direct connections
//   either:    withdrawLibrary       not any more
//   either:    knock                 a SYN of its is on the way; its sequence number ends in the tag
//   either:    heard                 the answer: it arrived, sealed with a key that is not told yet
//   either:    sequence              the whole sequence number, and that of the answer to the SYN
//   either:    gate                  the key of the seal: from there on streams may come
//   either:    closed                instead of heard or gate: why they may not
//   either:    directWaits           ends of connections with these keys were offered and wait there
//   acceptor:  directFound           the other ends are there, expected on these links; with proofs
//   dialer:    directFound           it opens them there; with proofs of its own
//   dialer:    directGone            instead: it has no such ends, or cannot
//   either:    link                  for the lanes: about their link of that number
//   either:    ping                  still here; answered with a pong of the same number
//   either:    bye                   the last line of a side that leaves in order
//   either:    refused               the last line to a side that broke the protocol

import {
  converted,
  type Fields,
  hex,
  integer,
  jsonObject,
  list,
  type MessageOf,
  object,
  oneOf,
  only,
  optional,
  Protocol,
  printableText,
  text,
} from '../../json-lines/index.ts';
import { canonicalHost, formatIpEndpoint, parseIpEndpoint } from '../../steering/index.ts';
import { isNodeName } from '../../text/index.ts';
import type { PeerHello } from './control-spec.ts';

export const MAX_ENDPOINTS_PER_LINE = 1000;
export const MAX_ADDRESSES = 1000;
const MAX_LANES = 64;
/** Links are numbered from 0. */
const MAX_LINKS = 64;
export const MAX_LINK_BODY_BYTES = 16 * 1024;
const MAX_LINK_BODY_DEPTH = 16;
/** Of what is told of knocks, or of direct connections, in one line. */
export const MAX_AT_ONCE = 64;
/** As many as a daemon keeps SYNs for. */
const MAX_TAG = 16_383;

const nodeName = only(text(/^.{1,63}$/, 'a node name'), isNodeName, 'a node name');
const wire = text(/^[\x21-\x7e]{1,64}$/, 'the name of a wire');
const ipEndpoint = converted(text(/^.{1,60}$/, 'an address and port'), parseIpEndpoint, formatIpEndpoint);
const ipAddress = converted(text(/^[0-9a-fA-F:.]{2,45}$/, 'an IP address'), canonicalHost, canonicalHost);
const endpoints = list(ipEndpoint, 0, MAX_ENDPOINTS_PER_LINE);
const reason = printableText();
const many = <F extends Fields>(fields: F) => ({ list: list(object(fields), 1, MAX_AT_ONCE) });
const nonce = hex(32);
const sequenceNumber = integer(0, 0xffff_ffff);
const link = integer(0, MAX_LINKS - 1);
const keys = list(hex(32), 1, MAX_AT_ONCE);

export const controlProtocol = new Protocol('control', 7, {
  hello: {
    name: nodeName,
    incarnation: hex(32),
    lanes: integer(1, MAX_LANES),
    wires: list(wire, 0, 8),
    admission: oneOf('packets', 'peers'),
    // Of direct connections; absent where there are none.
    ringBytes: optional(integer(1, 2 ** 30)),
    nonce: optional(nonce),
  },
  proof: { nonce },
  addresses: { number: integer(), addresses: list(ipAddress, 0, MAX_ADDRESSES) },
  addressesKnown: { number: integer() },
  announce: { endpoints },
  withdraw: { endpoints },
  announceLibrary: { endpoints },
  withdrawLibrary: { endpoints },
  knock: many({ number: integer(), tag: integer(0, MAX_TAG), from: ipAddress, to: ipEndpoint }),
  heard: many({ number: integer(), seal: hex(64) }),
  sequence: many({ number: integer(), sequence: sequenceNumber, answer: sequenceNumber }),
  gate: many({ number: integer(), key: hex(32) }),
  closed: many({ number: integer(), reason }),
  directWaits: { keys },
  directFound: many({ key: hex(32), proof: hex(32), link }),
  directGone: { keys },
  link: { link, body: jsonObject(MAX_LINK_BODY_BYTES, MAX_LINK_BODY_DEPTH) },
  ping: { number: integer() },
  pong: { number: integer() },
  bye: { reason },
  refused: { reason },
});

export type Message = MessageOf<typeof controlProtocol>;
/** What is said once both are up, apart from the heartbeat. */
export type PeerMessage = MessageOf<
  typeof controlProtocol,
  'addresses' | 'addressesKnown' | ListenersKind | 'link' | KnockKind | GateKind | DirectKind
>;

export type ListenersKind = 'announce' | 'withdraw' | 'announceLibrary' | 'withdrawLibrary';

type KnockKind = 'knock' | 'sequence';
type GateKind = 'heard' | 'gate' | 'closed';
type DirectKind = 'directWaits' | 'directFound' | 'directGone';
/** One of the many that a message of that kind may tell. */
type One<Kind extends KnockKind | GateKind | 'directFound'> = Kind extends unknown
  ? { readonly kind: Kind } & MessageOf<typeof controlProtocol, Kind>['list'][number]
  : never;
/** From who knocks. */
export type KnockMessage = One<KnockKind>;
/** From who may have heard it. */
export type GateMessage = One<GateKind>;

/** Of one direct connection between the two hosts. */
export type DirectWord = { readonly kind: 'directWaits' | 'directGone'; readonly key: string } | One<'directFound'>;

/** Throws a UsageError when peers would refuse it. */
export function checkHello(hello: PeerHello): void {
  controlProtocol.encode(helloMessage(hello));
}

/** `nonce`: of the acceptor. */
export function helloMessage(hello: PeerHello, nonce?: string): MessageOf<typeof controlProtocol, 'hello'> {
  return { kind: 'hello', ...hello, ringBytes: hello.ringBytes, nonce };
}
