// What a peer must know of a QP to connect to it: plain data, its form in JSON, and the lines by
// which two QPs are connected.
//
// A room of its own, without the object model of verbs: a stream on plain TCP needs no more than
// this.
//
//   either:   hello    its endpoint
//   either:   ready    its QP is in RTS: what one side sends before the other is in RTR is lost

import { isIPv6 } from 'node:net';
import { ProtocolError } from '../../errors.ts';
import { integer, map, object, oneOf, only, Protocol, text, type ValueOf } from '../../json-lines/index.ts';

const gid = only(
  text(/^[0-9a-fA-F:.]{2,45}$/, 'an IPv6 address'),
  // A zone, as in fe80::1%eth0, does not match the pattern.
  isIPv6,
  'an IPv6 address',
);

export const remoteRegion = only(
  object({ address: integer(), rkey: integer(0, 0xffff_ffff), sizeBytes: integer() }),
  ({ address, sizeBytes }) => Number.isSafeInteger(address + sizeBytes),
  'one that ends below 2^53',
);

const fields = {
  qpNumber: integer(0, 0xff_ffff),
  /** The first packet sequence number this side sends. */
  psn: integer(0, 0xff_ffff),
  gid,
  lid: integer(0, 0xffff),
  mtu: oneOf(256, 512, 1024, 2048, 4096),
  /** What the peer may reach, by a name both sides know. */
  regions: map(remoteRegion, 256, 64),
};

export const qpEndpoint = object(fields);
export const qpProtocol = new Protocol('qp', 2, { hello: fields, ready: { qpNumber: fields.qpNumber } });

/** What a peer must know to reach a region. */
export type RemoteRegion = ValueOf<typeof remoteRegion>;
export type QpEndpoint = ValueOf<typeof qpEndpoint>;

/** As plain data for one line of JSON. */
export function encodeQpEndpoint(endpoint: QpEndpoint): object {
  return qpProtocol.encode({ kind: 'hello', ...endpoint });
}

/** Checks everything, since the other side may be anybody. Throws a ProtocolError. */
export function decodeQpEndpoint(value: unknown): QpEndpoint {
  const { kind, ...endpoint } = qpProtocol.decode(value);
  if (kind !== 'hello' || !('psn' in endpoint)) throw new ProtocolError(`qp message: ${kind}, where hello is expected`);
  return endpoint;
}
