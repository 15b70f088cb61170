// What sender and receiver of a file say to each other beside the stream, version 1: lines of JSON, each checked in full.
//
// The receiver calls; the sender listens. With TLS these lines are encrypted; the bytes of the stream are not, but they are
// summed up here, so that who changes them on the way is found out.
//
//   receiver: {"millrace":"courier","version":1}
//   sender:   {"parcel":{"name":"a.iso","sizeBytes":123,"modifiedNs":"17…"}}   a pipe has null for what it does not know
//   receiver: {"have":100}                                                    bytes of it from before; 0: none
//   receiver: {"prefix":"<sha256 of these>"}                                  only after a `have` that is not 0
//   sender:   {"stream":{"port":40104,"startBytes":100}}                      where the rest can be fetched with openReceiver;
//                                                                             startBytes is `have`, or 0 when those bytes differ
//   …the stream…
//   sender:   {"sum":{"sizeBytes":123,"sha256":"…"}}                          of the whole file
//   receiver: {"kept":"<sha256>"}                                             it has its final name; the last line
//   either:   {"busy":true}                                                   still here, and reading or writing a disk
//   either:   {"failed":{"code":"ENOSPC","reason":"…"}}                       it gives up; its last line

import { UsageError } from '../../errors.ts';
import { readable } from '../../tls/index.ts';
import type { Failure } from './courier-error.ts';

export const COURIER_VERSION = 1;
export const MAX_LINE_BYTES = 4096;
const MAX_NAME_BYTES = 255;

/** What is sent, as far as the sender knows. The same three: the same file. */
export interface Parcel {
  /** Without folders. Undefined: a pipe. */
  readonly name: string | undefined;
  /** Undefined: a pipe, which tells at its end. */
  readonly sizeBytes: number | undefined;
  /** When the file was changed last, in ns since 1970. Undefined: a pipe. */
  readonly modifiedNs: string | undefined;
}

export type Message =
  | { readonly kind: 'hello' | 'busy' }
  | ({ readonly kind: 'parcel' } & Parcel)
  | { readonly kind: 'have'; readonly bytes: number }
  | { readonly kind: 'prefix' | 'kept'; readonly sha256: string }
  | { readonly kind: 'stream'; readonly port: number; readonly startBytes: number }
  | { readonly kind: 'sum'; readonly sizeBytes: number; readonly sha256: string }
  | ({ readonly kind: 'failed' } & Failure);

export type MessageOf<Kind extends Message['kind']> = Extract<Message, { readonly kind: Kind }>;

type Body = Readonly<Record<string, unknown>>;

/** As plain data for one line. */
export function encodeMessage(message: Message): object {
  switch (message.kind) {
    case 'hello':
      return { millrace: 'courier', version: COURIER_VERSION };
    case 'busy':
      return { busy: true };
    case 'parcel': {
      const { name = null, sizeBytes = null, modifiedNs = null } = message;
      return { parcel: { name, sizeBytes, modifiedNs } };
    }
    case 'have':
      return { have: message.bytes };
    case 'prefix':
    case 'kept':
      return { [message.kind]: message.sha256 };
    case 'stream':
      return { stream: { port: message.port, startBytes: message.startBytes } };
    case 'sum':
      return { sum: { sizeBytes: message.sizeBytes, sha256: message.sha256 } };
    case 'failed':
      return { failed: { code: codeOf(message.code), reason: readable(message.reason) } };
  }
}

/** Throws a UsageError that says what is wrong with it. */
export function decodeMessage(value: unknown): Message {
  const body = objectOf(value, 'a message');
  if ('millrace' in body) return helloOf(body);
  const [kind = '', ...more] = Object.keys(body);
  if (more.length > 0) throw new UsageError('a message with more than one part');
  const part = body[kind];
  switch (kind) {
    case 'busy':
      if (part !== true) throw new UsageError('busy that is not true');
      return { kind };
    case 'parcel':
      return { kind, ...decodeParcel(part) };
    case 'have':
      return { kind, bytes: sizeOf(part, kind) };
    case 'prefix':
    case 'kept':
      return { kind, sha256: sumOf(part) };
    case 'stream': {
      const { port, startBytes, ...rest } = objectOf(part, kind);
      refuseRest(rest);
      return { kind, port: integerOf(port, 'port', 1, 65_535), startBytes: sizeOf(startBytes, 'startBytes') };
    }
    case 'sum': {
      const { sizeBytes, sha256, ...rest } = objectOf(part, kind);
      refuseRest(rest);
      return { kind, sizeBytes: sizeOf(sizeBytes, 'sizeBytes'), sha256: sumOf(sha256) };
    }
    case 'failed': {
      const { code, reason, ...rest } = objectOf(part, kind);
      refuseRest(rest);
      return { kind, code: codeOf(code), reason: readable(String(reason)) };
    }
    default:
      throw new UsageError(`a message of no known kind: ${readable(kind).slice(0, 40)}`);
  }
}

/** Also what a part's note holds. */
export function decodeParcel(value: unknown): Parcel {
  const { name, sizeBytes, modifiedNs, ...rest } = objectOf(value, 'a parcel');
  refuseRest(rest);
  return {
    name: name === null ? undefined : nameOf(name),
    sizeBytes: sizeBytes === null ? undefined : sizeOf(sizeBytes, 'sizeBytes'),
    modifiedNs: modifiedNs === null ? undefined : nanosecondsOf(modifiedNs),
  };
}

export function isSameParcel(one: Parcel, other: Parcel): boolean {
  return one.name === other.name && one.sizeBytes === other.sizeBytes && one.modifiedNs === other.modifiedNs;
}

function helloOf({ millrace, version, ...rest }: Body): Message {
  if (millrace !== 'courier') throw new UsageError(`it speaks ${shown(millrace)} and not the protocol of files`);
  if (version !== COURIER_VERSION) {
    throw new UsageError(`it speaks version ${shown(version)} of the protocol, and this side ${COURIER_VERSION}`);
  }
  refuseRest(rest);
  return { kind: 'hello' };
}

/** A name in a folder, and never a way out of it. */
function nameOf(value: unknown): string {
  const isName =
    typeof value === 'string' &&
    Buffer.byteLength(value) <= MAX_NAME_BYTES &&
    value.isWellFormed() &&
    !/^\.{0,2}$|[/\p{Cc}]/u.test(value);
  if (!isName) throw new UsageError(`name is ${shown(value)}, which is no name of a file`);
  return value;
}

function nanosecondsOf(value: unknown): string {
  if (typeof value === 'string' && /^-?\d{1,20}$/.test(value)) return value;
  throw new UsageError(`modifiedNs is ${shown(value)}, which is no time`);
}

function sumOf(value: unknown): string {
  if (typeof value === 'string' && /^[0-9a-f]{64}$/.test(value)) return value;
  throw new UsageError(`a sum that is ${shown(value)} and not 64 hexadecimal digits`);
}

function codeOf(value: unknown): string {
  return typeof value === 'string' && /^[A-Z][A-Z0-9_]{1,60}$/.test(value) ? value : 'MILLRACE_ERR_FAILED';
}

function sizeOf(value: unknown, name: string): number {
  return integerOf(value, name, 0, Number.MAX_SAFE_INTEGER);
}

function integerOf(value: unknown, name: string, min: number, max: number): number {
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= min && value <= max) return value;
  throw new UsageError(`${name} is ${shown(value)}; expected ${min} to ${max}`);
}

function objectOf(value: unknown, what: string): Body {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return { ...value };
  throw new UsageError(`${what} that is not an object but ${shown(value)}`);
}

function refuseRest(rest: Body): void {
  const [name] = Object.keys(rest);
  if (name !== undefined) throw new UsageError(`an unknown part: ${readable(name).slice(0, 40)}`);
}

/** A stranger's words, short and on one line. */
function shown(value: unknown): string {
  return readable((JSON.stringify(value) ?? 'missing').slice(0, 40));
}
