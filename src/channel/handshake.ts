// What two lanes say to each other to connect a link, by way of the daemons' control connection. Everything is checked here.
//
//   caller: offer    a session, new or to be resumed; the ring's geometry; a transport; how far it has read
//   other:  accept   its transport, and how far it has read; or `reject` with a reason
//   caller: ready    it is connected: both may write
//   other:  broken   its transport does not work any more: the caller offers another
//   either: closed   it has ended the session, and all streams with it

import { UsageError } from '../errors.ts';
import { decodeQpEndpoint, encodeQpEndpoint, type QpEndpoint, type RemoteRegion } from '../verbs/index.ts';
import type { ReadState } from './link.ts';
import { checkGeometry, type Geometry, LAYOUT_VERSION } from './region-layout.ts';
import type { TransportOffer } from './transport.ts';

export const MAX_DATA_QPS = 16;

export interface Offer {
  readonly kind: 'offer';
  readonly session: string;
  /** The session is to go on; otherwise it is new. */
  readonly isResumed: boolean;
  readonly attempt: number;
  readonly wire: string;
  /** What machine this is, for wires that need the same one; '' where nobody said. */
  readonly place: string;
  readonly geometry: Geometry;
  readonly transport: TransportOffer;
  readonly read: ReadState;
}

export interface Accept {
  readonly kind: 'accept';
  readonly attempt: number;
  readonly transport: TransportOffer;
  readonly read: ReadState;
}

/** `session`: start anew. `device`: try another. `busy`: try again later. */
export const rejections = ['session', 'device', 'busy'] as const;
export type Rejection = (typeof rejections)[number];

export type LinkMessage =
  | Offer
  | Accept
  | { readonly kind: 'reject'; readonly attempt: number; readonly code: Rejection; readonly reason: string }
  | { readonly kind: 'ready'; readonly attempt: number }
  | { readonly kind: 'broken' | 'closed'; readonly attempt: number; readonly reason: string };

export function encodeLinkMessage(message: LinkMessage): object {
  if (message.kind !== 'offer' && message.kind !== 'accept') return message;
  const { qps, region } = message.transport;
  const transport = { qps: qps.map(encodeQpEndpoint), region };
  return message.kind === 'offer' ? { ...message, layout: LAYOUT_VERSION, transport } : { ...message, transport };
}

/** Throws a UsageError that says what is wrong. */
export function decodeLinkMessage(body: object): LinkMessage {
  const fields = body as Readonly<Record<string, unknown>>;
  const attempt = integer(fields, 'attempt', 0xffff_ffff);
  switch (fields.kind) {
    case 'offer':
      return decodeOffer(fields, attempt);
    case 'accept':
      return { kind: 'accept', attempt, transport: transportOf(fields.transport), read: readOf(fields.read) };
    case 'reject': {
      const code = rejections.find((one) => one === fields.code);
      if (code === undefined) throw new UsageError('a rejection of an unknown kind');
      return { kind: 'reject', attempt, code, reason: textOf(fields.reason) };
    }
    case 'ready':
      return { kind: 'ready', attempt };
    case 'broken':
    case 'closed':
      return { kind: fields.kind, attempt, reason: textOf(fields.reason) };
    default:
      throw new UsageError('a link message of an unknown kind');
  }
}

function decodeOffer(fields: Readonly<Record<string, unknown>>, attempt: number): Offer {
  if (fields.layout !== LAYOUT_VERSION) {
    const layout = textOf(JSON.stringify(fields.layout)).slice(0, 20);
    throw new UsageError(`layout ${layout} of the rings; this side has ${LAYOUT_VERSION}`);
  }
  const { session, wire, isResumed, place } = fields;
  if (typeof place !== 'string' || !/^[0-9a-f]{0,64}$/.test(place)) throw new UsageError('a place without a name');
  if (typeof session !== 'string' || !/^[0-9a-f]{32}$/.test(session)) throw new UsageError('a session without a name');
  if (typeof wire !== 'string' || !/^[a-zA-Z0-9]{1,16}$/.test(wire)) throw new UsageError('a wire without a name');
  if (typeof isResumed !== 'boolean') throw new UsageError('a session neither new nor resumed');
  const of = fieldsOf(fields.geometry, 'the geometry');
  const geometry = {
    slotBytes: integer(of, 'slotBytes', 4096),
    slots: integer(of, 'slots', 2 ** 24),
    maxRecordSlots: integer(of, 'maxRecordSlots', 2 ** 24),
  };
  checkGeometry(geometry);
  const transport = transportOf(fields.transport);
  return { kind: 'offer', session, isResumed, attempt, wire, place, geometry, transport, read: readOf(fields.read) };
}

function transportOf(value: unknown): TransportOffer {
  const { qps, region } = fieldsOf(value, 'the transport');
  if (!Array.isArray(qps) || qps.length < 2 || qps.length > MAX_DATA_QPS + 1) {
    throw new UsageError(`expected 2 to ${MAX_DATA_QPS + 1} queue pairs`);
  }
  return { qps: qps.map(endpointFrom), region: regionOf(region) };
}

function endpointFrom(value: unknown): QpEndpoint {
  try {
    return decodeQpEndpoint(value);
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error), { cause: error });
  }
}

function regionOf(value: unknown): RemoteRegion {
  const fields = fieldsOf(value, 'the region');
  const address = integer(fields, 'address', Number.MAX_SAFE_INTEGER);
  const sizeBytes = integer(fields, 'sizeBytes', Number.MAX_SAFE_INTEGER);
  if (!Number.isSafeInteger(address + sizeBytes)) throw new UsageError('a region that ends past 2^53');
  return { address, rkey: integer(fields, 'rkey', 0xffff_ffff), sizeBytes };
}

function readOf(value: unknown): ReadState {
  const fields = fieldsOf(value, 'the read state');
  return {
    position: integer(fields, 'position', 0xffff_ffff),
    sequence: integer(fields, 'sequence', 0xffff_ffff),
  };
}

function fieldsOf(value: unknown, what: string): Readonly<Record<string, unknown>> {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return { ...value };
  throw new UsageError(`${what} is no object`);
}

function integer(fields: Readonly<Record<string, unknown>>, name: string, max: number): number {
  const value = fields[name];
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 && value <= max) return value;
  throw new UsageError(`${name} is not a whole number from 0 to ${max}`);
}

/** For people to read: short, and nothing that moves a cursor. */
function textOf(value: unknown): string {
  // Not String(value): an object may have a `toString` that is no function.
  return (typeof value === 'string' ? value : 'no reason').replaceAll(/[^\x20-\x7e]/g, '?').slice(0, 200);
}
