// Messages of a protocol over a stream, for who waits for the next one.

import type { Duplex } from 'node:stream';
import { ProtocolError } from '../errors.ts';
import { type LineOptions, readLine } from './line.ts';
import type { MessageOf, MessageTable, Protocol } from './protocol.ts';

export function writeMessage<T extends MessageTable>(
  socket: Duplex,
  protocol: Protocol<T>,
  message: MessageOf<Protocol<T>>,
): void {
  socket.write(protocol.line(message));
}

/**
 * Rejects as `readLine` does, and with a ProtocolError when the line is no message of the protocol.
 */
export async function readMessage<T extends MessageTable>(
  socket: Duplex,
  protocol: Protocol<T>,
  options?: LineOptions,
): Promise<MessageOf<Protocol<T>>> {
  return protocol.decode(await readLine(socket, options));
}

/** Whether it is of that kind; where another one is an error, see `unexpected`. */
export function isOfKind<M extends { readonly kind: string }, const Kind extends M['kind']>(
  message: M,
  kind: Kind,
): message is Extract<M, { readonly kind: Kind }> {
  return message.kind === kind;
}

export function unexpected(message: { readonly kind: string }, expected: string): ProtocolError {
  return new ProtocolError(`it sent ${message.kind}, where ${expected} is expected`);
}
