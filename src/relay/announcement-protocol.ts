// What relays say to each other: lines of JSON, each checked in full before anything is believed.
//
//   caller: {"millrace":"announcements","version":1,"name":"a"}     the first line; the other side answers with the same
//   caller: {"announce":["10.0.0.1:80","[fd00::1]:80"]}             somebody listens there
//   caller: {"withdraw":["10.0.0.1:80"]}
//   caller: {"caller":["10.0.0.1:4001","10.0.0.1:4000"]}            what comes from the first address is really from the second
//   other:  {"named":"10.0.0.1:4001"}                               the answer to that: from now on programs see it so
//   caller: {"forget":"10.0.0.1:4001"}                              that connection is over
//   caller: {}                                                      still here
//   either: {"refused":"why"}                                       the last line

import { UsageError } from '../errors.ts';
import { MAX_ENDPOINTS_PER_LINE } from '../proxy/control/index.ts';
import { formatIpEndpoint, type IpEndpoint, parseIpEndpoint } from '../steering/index.ts';
import { isNodeName } from '../text/index.ts';

export const PROTOCOL_VERSION = 1;

export type Message =
  | { readonly kind: 'hello'; readonly name: string }
  | { readonly kind: 'announce' | 'withdraw'; readonly endpoints: readonly IpEndpoint[] }
  | { readonly kind: 'caller'; readonly local: IpEndpoint; readonly client: IpEndpoint }
  | { readonly kind: 'named' | 'forget'; readonly local: IpEndpoint }
  | { readonly kind: 'alive' }
  | { readonly kind: 'refused'; readonly reason: string };

export function encodeMessage(message: Message): string {
  return `${JSON.stringify(bodyOf(message))}\n`;
}

function bodyOf(message: Message): object {
  switch (message.kind) {
    case 'hello':
      return { millrace: 'announcements', version: PROTOCOL_VERSION, name: message.name };
    case 'announce':
    case 'withdraw':
      return { [message.kind]: message.endpoints.map(formatIpEndpoint) };
    case 'caller':
      return { caller: [formatIpEndpoint(message.local), formatIpEndpoint(message.client)] };
    case 'named':
    case 'forget':
      return { [message.kind]: formatIpEndpoint(message.local) };
    case 'alive':
      return {};
    case 'refused':
      return { refused: message.reason };
  }
}

/** Throws a UsageError that says what is wrong with the line. */
export function decodeMessage(line: string): Message {
  const body = parseObject(line);
  const [key, ...others] = Object.keys(body);
  if (key === undefined) return { kind: 'alive' };
  if (key === 'millrace') return helloOf(body);
  if (others.length > 0) throw new UsageError('a message with too many parts');
  switch (key) {
    case 'announce':
    case 'withdraw':
      return { kind: key, endpoints: endpointsOf(body[key]) };
    case 'caller':
      return callerOf(body.caller);
    case 'named':
    case 'forget':
      return { kind: key, local: endpointFrom(body[key]) };
    case 'refused':
      return { kind: 'refused', reason: textOf(body.refused) };
    default:
      throw new UsageError('a message of an unknown kind');
  }
}

function parseObject(line: string): Readonly<Record<string, unknown>> {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch {
    throw new UsageError('a line that is not JSON');
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new UsageError('not an object');
  return value as Readonly<Record<string, unknown>>;
}

function helloOf(body: Readonly<Record<string, unknown>>): Message {
  const { millrace, version, name } = body;
  if (millrace !== 'announcements') throw new UsageError('another protocol');
  if (version !== PROTOCOL_VERSION)
    throw new UsageError(`version ${JSON.stringify(version)}; this side speaks ${PROTOCOL_VERSION}`);
  if (typeof name !== 'string' || !isNodeName(name)) throw new UsageError('a name that is none');
  return { kind: 'hello', name };
}

function endpointsOf(list: unknown): readonly IpEndpoint[] {
  if (!Array.isArray(list) || list.length > MAX_ENDPOINTS_PER_LINE) {
    throw new UsageError(`no list of at most ${MAX_ENDPOINTS_PER_LINE} endpoints`);
  }
  return list.map(endpointFrom);
}

function endpointFrom(text: unknown): IpEndpoint {
  if (typeof text !== 'string' || text.length > 60) throw new UsageError('an endpoint that is none');
  return parseIpEndpoint(text);
}

function callerOf(pair: unknown): Message {
  const [local, client, ...rest] = endpointsOf(pair);
  if (local === undefined || client === undefined || rest.length > 0) throw new UsageError('a caller that is no pair');
  return { kind: 'caller', local, client };
}

/** For people to read: short, and nothing that moves a cursor. */
function textOf(value: unknown): string {
  return String(value)
    .replaceAll(/[^\x20-\x7e]/g, '?')
    .slice(0, 200);
}
