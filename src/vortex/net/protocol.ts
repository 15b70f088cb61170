// What the two sides of a network stream say on their control connection, version 1: lines of JSON, each checked in full.
//
// The receiver dials; the sender listens.
//
//   receiver: {"millrace":"vortex","version":1,"wire":null,"strategy":null}     null: whatever the sender has
//   sender:   {"offer":{"sizeBytes":null,"blockBytes":1048576,"poolBlocks":8,"wire":"tcp","strategy":"pool","token":"<32 hex>"}}
//   receiver: {"accept":{"poolBlocks":16,"path":[]}}                            path: its two queue pairs, on RDMA
//   sender:   {"connect":{"path":[]}}                                           its own
//   receiver: {"ready":true}                                                    bytes may come
//   sender:   {"size":123}                                                      all is written; so long is the stream
//   receiver: {"done":true}                                                     all is read; its last line
//   either:   {"ping":1}                                                        still here; answered with {"pong":1}
//   either:   {"bye":"why"}                                                     it ends the stream before its end; its last line
//   either:   {"cut":"why"}                                                     what carries the blocks broke; its last line
//   either:   {"refused":"why"}                                                 the other one broke the rules; its last line
//
// On the wire `tcp` the receiver dials the same port a second time and sends one byte, 0xd7, and the token. Then come the bytes
// of the stream and nothing else, unencrypted as on RDMA also where the control connection has TLS: who can change
// packets on the way can change the stream.

import { UsageError } from '../../errors.ts';
import { readable } from '../../tls/index.ts';
// Not by the room's index: an engine on plain TCP starts 30 ms sooner without the rest of it.
import { decodeQpEndpoint, encodeQpEndpoint, type QpEndpoint } from '../../verbs/index.ts';
import { MAX_BLOCK_BYTES, MIN_BLOCK_BYTES } from '../stream/index.ts';

export const VORTEX_VERSION = 1;
/** Two endpoints with a region are below 1 KiB. */
export const MAX_LINE_BYTES = 8192;
export const TOKEN_BYTES = 16;
/** First byte of a data connection: no JSON and no TLS begins with it. */
export const DATA_FIRST_BYTE = 0xd7;
export const PREFACE_BYTES = 1 + TOKEN_BYTES;

export const strategies = ['pool', 'register', 'copy'] as const;
/** How blocks get from pool to pool on RDMA. */
export type Strategy = (typeof strategies)[number];

/** What carries the blocks: plain TCP, or RDMA of a kind. */
export const wires = ['tcp', 'rdma-shm', 'rdma-tcp', 'rdma-roce', 'rdma-ib', 'rdma-iwarp'] as const;
export type Wire = (typeof wires)[number];

/** On RDMA: the queue pair for blocks, then that for notices. Empty on TCP. */
export type Path = readonly QpEndpoint[];

export interface Hello {
  /** Undefined: any. */
  readonly wire: Wire | undefined;
  readonly strategy: Strategy | undefined;
}

export interface Offer {
  /** Undefined: not known yet. */
  readonly sizeBytes: number | undefined;
  readonly blockBytes: number;
  readonly poolBlocks: number;
  readonly wire: Wire;
  readonly strategy: Strategy;
  readonly token: string;
}

export type Message =
  | ({ readonly kind: 'hello' } & Hello)
  | ({ readonly kind: 'offer' } & Offer)
  | { readonly kind: 'accept'; readonly poolBlocks: number; readonly path: Path }
  | { readonly kind: 'connect'; readonly path: Path }
  | { readonly kind: 'ready' | 'done' }
  | { readonly kind: 'size'; readonly sizeBytes: number }
  | { readonly kind: 'ping' | 'pong'; readonly number: number }
  | { readonly kind: 'bye' | 'cut' | 'refused'; readonly reason: string };

export type MessageOf<Kind extends Message['kind']> = Extract<Message, { readonly kind: Kind }>;

type Body = Readonly<Record<string, unknown>>;

/** As plain data for one line. */
export function encodeMessage(message: Message): object {
  switch (message.kind) {
    case 'hello':
      return {
        millrace: 'vortex',
        version: VORTEX_VERSION,
        wire: message.wire ?? null,
        strategy: message.strategy ?? null,
      };
    case 'offer': {
      const { kind: _, sizeBytes = null, ...rest } = message;
      return { offer: { ...rest, sizeBytes } };
    }
    case 'accept':
      return { accept: { poolBlocks: message.poolBlocks, path: message.path.map(encodeQpEndpoint) } };
    case 'connect':
      return { connect: { path: message.path.map(encodeQpEndpoint) } };
    case 'ready':
    case 'done':
      return { [message.kind]: true };
    case 'size':
      return { size: message.sizeBytes };
    case 'ping':
    case 'pong':
      return { [message.kind]: message.number };
    case 'bye':
    case 'cut':
    case 'refused':
      return { [message.kind]: readable(message.reason) };
  }
}

/** Throws a UsageError that says what is wrong with it. */
export function decodeMessage(value: unknown): Message {
  const body = objectOf(value, 'a message');
  if ('millrace' in body) return helloOf(body);
  const [kind = '', ...more] = Object.keys(body);
  if (more.length > 0) throw new UsageError('a message with more than one part');
  switch (kind) {
    case 'offer':
      return offerOf(objectOf(body.offer, 'an offer'));
    case 'accept': {
      const { poolBlocks, path, ...rest } = objectOf(body.accept, 'accept');
      refuseRest(rest);
      return { kind, poolBlocks: integerOf(poolBlocks, 'poolBlocks', 2, 65_536), path: pathOf(path) };
    }
    case 'connect': {
      const { path, ...rest } = objectOf(body.connect, 'connect');
      refuseRest(rest);
      return { kind, path: pathOf(path) };
    }
    case 'ready':
    case 'done':
      if (body[kind] !== true) throw new UsageError(`${kind} that is not true`);
      return { kind };
    case 'size':
      return { kind, sizeBytes: integerOf(body.size, 'size', 0, Number.MAX_SAFE_INTEGER) };
    case 'ping':
    case 'pong':
      return { kind, number: integerOf(body[kind], kind, 0, Number.MAX_SAFE_INTEGER) };
    case 'bye':
    case 'cut':
    case 'refused':
      return { kind, reason: readable(textOf(body[kind], kind)) };
    default:
      throw new UsageError(`a message of no known kind: ${readable(kind).slice(0, 40)}`);
  }
}

function helloOf({ millrace, version, wire, strategy, ...rest }: Body): Message {
  if (millrace !== 'vortex') throw new UsageError(`it speaks ${shown(millrace)} and not the protocol of streams`);
  if (version !== VORTEX_VERSION) {
    throw new UsageError(`it speaks version ${shown(version)} of the protocol, and this side ${VORTEX_VERSION}`);
  }
  refuseRest(rest);
  return {
    kind: 'hello',
    wire: wire === null ? undefined : oneOf(wire, 'wire', wires),
    strategy: strategy === null ? undefined : oneOf(strategy, 'strategy', strategies),
  };
}

function offerOf({ sizeBytes, blockBytes, poolBlocks, wire, strategy, token, ...rest }: Body): Message {
  refuseRest(rest);
  const block = integerOf(blockBytes, 'blockBytes', MIN_BLOCK_BYTES, MAX_BLOCK_BYTES);
  if (!Number.isInteger(Math.log2(block))) throw new UsageError(`blocks of ${block} bytes, which is no power of two`);
  const text = textOf(token, 'token');
  if (!/^[0-9a-f]{32}$/.test(text)) throw new UsageError('a token that is not 32 hexadecimal digits');
  return {
    kind: 'offer',
    sizeBytes: sizeBytes === null ? undefined : integerOf(sizeBytes, 'sizeBytes', 0, Number.MAX_SAFE_INTEGER),
    blockBytes: block,
    poolBlocks: integerOf(poolBlocks, 'poolBlocks', 2, 65_536),
    wire: oneOf(wire, 'wire', wires),
    strategy: oneOf(strategy, 'strategy', strategies),
    token: text,
  };
}

function pathOf(value: unknown): Path {
  if (!Array.isArray(value) || (value.length !== 0 && value.length !== 2)) {
    throw new UsageError('a path that is not two queue pairs');
  }
  try {
    return value.map(decodeQpEndpoint);
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error), { cause: error });
  }
}

function objectOf(value: unknown, what: string): Body {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return { ...value };
  throw new UsageError(`${what} that is not an object but ${shown(value)}`);
}

function refuseRest(rest: Body): void {
  const [name] = Object.keys(rest);
  if (name !== undefined) throw new UsageError(`an unknown part: ${readable(name).slice(0, 40)}`);
}

function integerOf(value: unknown, name: string, min: number, max: number): number {
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= min && value <= max) return value;
  throw new UsageError(`${name} is ${shown(value)}; expected ${min} to ${max}`);
}

function textOf(value: unknown, name: string): string {
  if (typeof value === 'string') return value;
  throw new UsageError(`${name} is ${shown(value)} and no text`);
}

function oneOf<const T extends string>(value: unknown, name: string, all: readonly T[]): T {
  const found = all.find((one) => one === value);
  if (found === undefined) throw new UsageError(`${name} is ${shown(value)}; expected one of ${all.join(', ')}`);
  return found;
}

/** A stranger's words, short and on one line. */
function shown(value: unknown): string {
  return readable((JSON.stringify(value) ?? 'missing').slice(0, 40));
}
