// What two nodes say to each other over TCP, version 1: lines of JSON, each checked in full before it is believed.
//
// Who calls and who is called say the same:
//
//   {"millrace":"transfer","version":1,"node":7}      the first line
//   {"welcome":7}                                     the other's id, back: its hello was accepted
//   then the two lines of verbs/connect.ts: endpoint and ready. From here on the QPs are connected.
//   {"buffer":{"id":30064771073,"name":"inbox","address":4096,"rkey":1,"sizeBytes":65536}}    allocated; `name` may be missing
//   {"free":30064771073}                              start no further transfer with it, and say when the last one is over
//   {"freed":30064771073}                             the answer to that: it is
//   {"bye":"why"}                                     the last line, at any time
//
// A message has the parts that are shown here and no others.

import { UsageError } from '../errors.ts';
import { MAX_ID, MAX_NODE_ID, nodeIdOf } from './ids.ts';

export const TRANSFER_VERSION = 1;
/** Endpoints of verbs are the longest, some 300 bytes. */
export const MAX_LINE_BYTES = 4096;
/** Of one node, at a time. */
export const MAX_BUFFERS = 4096;
const MAX_REASON_LENGTH = 200;
const namePattern = /^[\x21-\x7e]{1,64}$/;

/** What a node tells of a buffer of its own. */
export interface BufferCard {
  readonly id: number;
  readonly name?: string;
  readonly address: number;
  readonly rkey: number;
  readonly sizeBytes: number;
}

export type Message =
  | { readonly kind: 'hello' | 'welcome'; readonly node: number }
  | { readonly kind: 'buffer'; readonly card: BufferCard }
  | { readonly kind: 'free' | 'freed'; readonly id: number }
  | { readonly kind: 'bye'; readonly reason: string };

type Fields = Readonly<Record<string, unknown>>;

export function isBufferName(name: string): boolean {
  return namePattern.test(name);
}

/** As plain data for one line of JSON. */
export function bodyOf(message: Message): object {
  switch (message.kind) {
    case 'hello':
      return { millrace: 'transfer', version: TRANSFER_VERSION, node: message.node };
    case 'welcome':
      return { welcome: message.node };
    case 'buffer':
      return { buffer: message.card };
    case 'free':
    case 'freed':
      return { [message.kind]: message.id };
    case 'bye':
      return { bye: readable(message.reason) };
  }
}

/** Throws a UsageError that says what is wrong with it. */
export function messageOf(value: unknown): Message {
  const fields = fieldsOf(value, 'a message');
  if (Object.hasOwn(fields, 'millrace')) return helloOf(fields);
  const [key, ...others] = Object.keys(fields);
  if (others.length > 0) throw new UsageError('a message with too many parts');
  switch (key) {
    case 'welcome':
      return { kind: key, node: integer(fields, key, 1, MAX_NODE_ID) };
    case 'buffer':
      return { kind: key, card: cardOf(fieldsOf(fields.buffer, 'a buffer')) };
    case 'free':
    case 'freed':
      return { kind: key, id: integer(fields, key, 1, MAX_ID) };
    case 'bye':
      return { kind: key, reason: typeof fields.bye === 'string' ? readable(fields.bye) : 'it gave no reason' };
    default:
      throw new UsageError('a message of an unknown kind');
  }
}

/** A card of a buffer of that node. */
export function checkOwner(card: BufferCard, nodeId: number): void {
  if (nodeIdOf(card.id) !== nodeId) throw new UsageError(`buffer ${card.id}, which is not its own`);
}

function helloOf(fields: Fields): Message {
  const { millrace, version, node: _node, ...others } = fields;
  if (millrace !== 'transfer') throw new UsageError('another protocol');
  if (version !== TRANSFER_VERSION) {
    const said = typeof version === 'number' ? version : 'that is no number';
    throw new UsageError(`version ${said}; this side speaks ${TRANSFER_VERSION}`);
  }
  if (Object.keys(others).length > 0) throw new UsageError('a hello with too many parts');
  return { kind: 'hello', node: integer(fields, 'node', 1, MAX_NODE_ID) };
}

function cardOf(fields: Fields): BufferCard {
  const { id: _id, name, address: _address, rkey: _rkey, sizeBytes: _size, ...others } = fields;
  if (Object.keys(others).length > 0) throw new UsageError('a buffer with too many parts');
  const isNamed = Object.hasOwn(fields, 'name');
  if (isNamed && (typeof name !== 'string' || !isBufferName(name))) throw new UsageError('a buffer whose name is none');
  const card = {
    id: integer(fields, 'id', 1, MAX_ID),
    ...(typeof name === 'string' && { name }),
    address: integer(fields, 'address', 0, Number.MAX_SAFE_INTEGER),
    rkey: integer(fields, 'rkey', 0, 0xffff_ffff),
    sizeBytes: integer(fields, 'sizeBytes', 1, Number.MAX_SAFE_INTEGER),
  };
  if (!Number.isSafeInteger(card.address + card.sizeBytes)) throw new UsageError('a buffer that ends past 2^53');
  return card;
}

function fieldsOf(value: unknown, what: string): Fields {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Fields;
  throw new UsageError(`${what} that is not an object`);
}

function integer(fields: Fields, name: string, min: number, max: number): number {
  const value = fields[name];
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= min && value <= max) return value;
  throw new UsageError(`a ${name} that is no whole number from ${min} to ${max}`);
}

/** For people to read: short, and nothing that moves a cursor. */
function readable(text: string): string {
  return text.replaceAll(/[^\x20-\x7e]/g, '?').slice(0, MAX_REASON_LENGTH);
}
