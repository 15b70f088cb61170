// What two daemons say on their control connection, version 1: lines of JSON, each checked in full before it is believed.
//
// The daemon with the smaller name (compared as plain strings) dials and is the caller; the other is the listener.
//
//   caller:   {"millrace":"control","version":1,"name":"a","incarnation":"<32 hex>","lanes":2,"wires":["shm","tcp"]}
//   listener: the same of itself, and "nonce":"<32 hex>"
//   caller:   {"proof":"<that nonce>"}                       this hello is no recording of an old one; both are up
//   either:   {"announce":["10.0.0.1:80","[fd00::1]:80"]}    somebody listens there; everything is told after the hello
//   either:   {"withdraw":["10.0.0.1:80"]}                   nobody does any more
//   either:   {"link":0,"body":{...}}                        for the lanes: about their link of that number
//   either:   {"ping":1}                                     still here; answered with {"pong":1}
//   either:   {"bye":"why"}                                  the last line of who leaves in order
//   either:   {"refused":"why"}                              the last line to who broke the rules
//
// A message has the parts that are shown here and no others. What does not fit is answered with `refused`.

import { UsageError } from '../../errors.ts';
import { formatIpEndpoint, type IpEndpoint, parseIpEndpoint } from '../../steering/index.ts';
import { isNodeName } from '../../text/index.ts';
import { readable } from '../../tls/index.ts';
import type { PeerHello } from './control-spec.ts';

export const MAX_ENDPOINTS_PER_LINE = 1000;
export const CONTROL_VERSION = 1;
export const MAX_LANES = 64;
/** Links are numbered from 0. */
export const MAX_LINKS = 64;
export const MAX_LINK_BODY_BYTES = 16 * 1024;
/** A body nested deeper could exhaust the stack of whoever walks or clones it. */
export const MAX_LINK_BODY_DEPTH = 16;
const MAX_WIRES = 8;
const MAX_WIRE_LENGTH = 64;
const MAX_ENDPOINT_LENGTH = 60;
/** Around the body of a link message: `{"link":63,"body":}`. */
const LINK_FRAME_BYTES = 19;
const hexPattern = /^[0-9a-f]{32}$/;

/** What is said once both are up, apart from the heartbeat. */
export type PeerMessage =
  | { readonly kind: 'announce' | 'withdraw'; readonly endpoints: readonly IpEndpoint[] }
  | { readonly kind: 'link'; readonly link: number; readonly body: object };

export type Message =
  | PeerMessage
  | { readonly kind: 'hello'; readonly hello: PeerHello; readonly nonce: string | undefined }
  | { readonly kind: 'proof'; readonly nonce: string }
  | { readonly kind: 'ping'; readonly number: number }
  | { readonly kind: 'pong'; readonly number: number }
  | { readonly kind: 'refused'; readonly reason: string }
  | { readonly kind: 'bye'; readonly reason: string };

type Body = Readonly<Record<string, unknown>>;

/** With the newline. Throws a UsageError when a link's body is too large or no plain object. */
export function encodeMessage(message: Message): string {
  const line = JSON.stringify(bodyOf(message));
  if (message.kind === 'link') linkOf(JSON.parse(line), line);
  return `${line}\n`;
}

function bodyOf(message: Message): object {
  switch (message.kind) {
    case 'hello':
      return { millrace: 'control', version: CONTROL_VERSION, ...message.hello, nonce: message.nonce };
    case 'proof':
      return { proof: message.nonce };
    case 'announce':
    case 'withdraw':
      return { [message.kind]: message.endpoints.map(formatIpEndpoint) };
    case 'link':
      return { link: message.link, body: message.body };
    case 'ping':
    case 'pong':
      return { [message.kind]: message.number };
    case 'refused':
    case 'bye':
      return { [message.kind]: readable(message.reason) };
  }
}

/** Throws a UsageError that says what is wrong with the line. */
export function decodeMessage(line: string): Message {
  try {
    return messageOf(line);
  } catch (error) {
    if (error instanceof UsageError) throw error;
    // A case that nobody thought of must not end the daemon.
    throw new UsageError('a line that cannot be understood', { cause: error });
  }
}

function messageOf(line: string): Message {
  const body = parseObject(line);
  if (Object.hasOwn(body, 'millrace')) return helloOf(body);
  if (Object.hasOwn(body, 'link')) return linkOf(body, line);
  const [key, ...others] = Object.keys(body);
  if (others.length > 0) throw new UsageError('a message with too many parts');
  switch (key) {
    case 'proof':
      return { kind: key, nonce: hexOf(body.proof, 'proof') };
    case 'announce':
    case 'withdraw':
      return { kind: key, endpoints: endpointsOf(body[key]) };
    case 'ping':
    case 'pong':
      return { kind: key, number: integerOf(body[key], 0, Number.MAX_SAFE_INTEGER, key) };
    case 'refused':
    case 'bye':
      return { kind: key, reason: readable(textOf(body[key], key)) };
    default:
      throw new UsageError('a message of an unknown kind');
  }
}

/** A hello that this side could send. Throws a UsageError when it is none. */
export function checkHello(hello: PeerHello): void {
  helloOf({ millrace: 'control', version: CONTROL_VERSION, ...hello });
}

function parseObject(line: string): Body {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    throw new UsageError('a line that is not JSON');
  }
  if (!isPlainObject(value)) throw new UsageError('a line that is not an object');
  return value;
}

function isPlainObject(value: unknown): value is Body {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function helloOf(body: Body): Message {
  const { millrace, version, name, incarnation, lanes, wires, nonce, ...others } = body;
  if (millrace !== 'control') throw new UsageError('another protocol');
  // Before anything else: another version may well have other parts.
  if (version !== CONTROL_VERSION) {
    const said = typeof version === 'number' ? version : 'that is no number';
    throw new UsageError(`a version ${said}; this side speaks ${CONTROL_VERSION}`);
  }
  if (Object.keys(others).length > 0) throw new UsageError('a hello with too many parts');
  if (typeof name !== 'string' || !isNodeName(name)) throw new UsageError('a name that is none');
  const hello = {
    name,
    incarnation: hexOf(incarnation, 'incarnation'),
    lanes: integerOf(lanes, 1, MAX_LANES, 'lanes'),
    wires: wiresOf(wires),
  };
  return { kind: 'hello', hello, nonce: nonce === undefined ? undefined : hexOf(nonce, 'nonce') };
}

function wiresOf(list: unknown): readonly string[] {
  const isWire = (wire: unknown): wire is string => typeof wire === 'string' && /^[\x21-\x7e]+$/.test(wire);
  if (!Array.isArray(list) || list.length > MAX_WIRES || !list.every(isWire)) {
    throw new UsageError(`wires that are no list of at most ${MAX_WIRES} names`);
  }
  if (list.some((wire) => wire.length > MAX_WIRE_LENGTH)) throw new UsageError('a wire with too long a name');
  return list;
}

function linkOf(message: Body, line: string): Message {
  const { link, body, ...others } = message;
  if (Object.keys(others).length > 0) throw new UsageError('a link message with too many parts');
  if (!isPlainObject(body)) throw new UsageError('a link message whose body is not an object');
  if (Buffer.byteLength(line) > MAX_LINK_BODY_BYTES + LINK_FRAME_BYTES) {
    throw new UsageError(`a link message whose body has more than ${MAX_LINK_BODY_BYTES} bytes`);
  }
  if (!isShallow(body, MAX_LINK_BODY_DEPTH)) throw new UsageError('a link message that is nested too deep');
  return { kind: 'link', link: integerOf(link, 0, MAX_LINKS - 1, 'link'), body };
}

function isShallow(value: unknown, depth: number): boolean {
  if (typeof value !== 'object' || value === null) return true;
  return depth > 0 && Object.values(value).every((part) => isShallow(part, depth - 1));
}

function endpointsOf(list: unknown): readonly IpEndpoint[] {
  if (!Array.isArray(list) || list.length > MAX_ENDPOINTS_PER_LINE) {
    throw new UsageError(`no list of at most ${MAX_ENDPOINTS_PER_LINE} endpoints`);
  }
  return list.map((text) => {
    if (typeof text !== 'string' || text.length > MAX_ENDPOINT_LENGTH) throw new UsageError('an endpoint that is none');
    return parseIpEndpoint(text);
  });
}

function integerOf(value: unknown, min: number, max: number, what: string): number {
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= min && value <= max) return value;
  throw new UsageError(`a ${what} that is no whole number from ${min} to ${max}`);
}

function hexOf(value: unknown, what: string): string {
  if (typeof value !== 'string' || !hexPattern.test(value)) throw new UsageError(`a ${what} that is not 32 hex digits`);
  return value;
}

function textOf(value: unknown, what: string): string {
  if (typeof value !== 'string') throw new UsageError(`a ${what} that is no text`);
  return value;
}
