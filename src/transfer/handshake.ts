// How two nodes meet on a socket: who are you, welcome, and the queue pairs modifyToRts.

import type { Socket } from 'node:net';
import { MillraceError } from '../errors.ts';
import { readLine, writeLine } from '../json-lines/index.ts';
import { connectQp, type Qp } from '../verbs/index.ts';
import { bodyOf, MAX_LINE_BYTES, type Message, messageOf } from './protocol.ts';

export interface MeetOptions {
  readonly ownId: number;
  readonly qp: Qp;
  readonly signal: AbortSignal;
  /** Why that node cannot be taken, or undefined. Called again when the QPs are connected: time has passed. */
  readonly objection: (nodeId: number) => string | undefined;
}

/** The other's id, when both QPs are in RTS. Otherwise the other is told why, and the socket is of no use any more. */
export async function meet(socket: Socket, options: MeetOptions): Promise<number> {
  const { ownId, qp, signal, objection } = options;
  const next = async (): Promise<Message> => {
    const message = messageOf(await readLine(socket, { signal, maxBytes: MAX_LINE_BYTES }));
    if (message.kind === 'bye') throw failed(`it said no: ${message.reason}`);
    return message;
  };
  const check = (nodeId: number): void => {
    const problem = objection(nodeId);
    if (problem !== undefined) throw failed(problem);
  };
  // Between two lines nobody else listens; the next read tells what happened.
  socket.on('error', () => {});
  try {
    writeLine(socket, bodyOf({ kind: 'hello', node: ownId }));
    const hello = await next();
    if (hello.kind !== 'hello') throw failed('it did not begin with a hello');
    check(hello.node);
    writeLine(socket, bodyOf({ kind: 'welcome', node: hello.node }));
    const welcome = await next();
    if (welcome.kind !== 'welcome' || welcome.node !== ownId) throw failed('it welcomed somebody else');
    await connectQp(socket, qp, { signal });
    check(hello.node);
    return hello.node;
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    socket.end(`${JSON.stringify(bodyOf({ kind: 'bye', reason }))}\n`);
    throw error;
  }
}

function failed(reason: string): MillraceError {
  return new MillraceError('MILLRACE_ERR_FAILED', `connect to a node: ${reason}`);
}
