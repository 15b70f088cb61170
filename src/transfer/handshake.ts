// How two nodes connect on a socket: two hellos, two welcomes, and then their QPs.

import type { Socket } from 'node:net';
import { MillraceError } from '../errors.ts';
import { readMessage, unexpected, writeMessage } from '../json-lines/index.ts';
import { connectQp, type Qp } from '../verbs/index.ts';
import { MAX_LINE_BYTES, type Message, transferProtocol } from './protocol.ts';

export interface MeetOptions {
  readonly ownId: number;
  readonly qp: Qp;
  readonly signal: AbortSignal;
  /**
   * Why that node cannot be accepted, or undefined. Called again when the QPs are connected: time
   * has passed.
   */
  readonly objection: (nodeId: number) => string | undefined;
}

/**
 * Resolves to the other's id when both QPs are in RTS. On an error the other is told why, and the
 * socket is ended.
 */
export async function meet(socket: Socket, options: MeetOptions): Promise<number> {
  const { ownId, qp, signal, objection } = options;
  const next = async (): Promise<Message> => {
    const message = await readMessage(socket, transferProtocol, { signal, maxBytes: MAX_LINE_BYTES });
    if (message.kind === 'bye') throw failed(`it refused: ${message.reason}`);
    return message;
  };
  const check = (nodeId: number): void => {
    const problem = objection(nodeId);
    if (problem !== undefined) throw failed(problem);
  };
  // Between two reads nobody else listens for errors; the next read rejects with this one.
  socket.on('error', () => {});
  try {
    writeMessage(socket, transferProtocol, { kind: 'hello', node: ownId });
    const hello = await next();
    if (hello.kind !== 'hello') throw unexpected(hello, 'hello');
    check(hello.node);
    writeMessage(socket, transferProtocol, { kind: 'welcome', node: hello.node });
    const welcome = await next();
    if (welcome.kind !== 'welcome') throw unexpected(welcome, 'welcome');
    if (welcome.node !== ownId) throw failed(`it welcomed node ${welcome.node}, and this is node ${ownId}`);
    await connectQp(socket, qp, { signal });
    check(hello.node);
    return hello.node;
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    socket.end(transferProtocol.line({ kind: 'bye', reason }));
    throw error;
  }
}

function failed(reason: string): MillraceError {
  return new MillraceError('MILLRACE_ERR_FAILED', `connect to a node: ${reason}`);
}
