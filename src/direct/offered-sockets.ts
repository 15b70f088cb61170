// The sockets that programs have handed over, until they are looked at, many at once, and closed.

import { Fd } from '../native/index.ts';
import type { Connection, SocketEnds } from './connection.ts';
import type { IdentityAnswer } from './identity.ts';

/** Descriptors that are held at once, for one look at all of them. */
const MAX_SOCKETS = 64;

/** How a socket is looked at. */
export interface SocketReader {
  /** The identities of sockets, in their order. */
  readIdentities(sockets: readonly (Fd | undefined)[]): readonly IdentityAnswer[];
  readEnds(socket: Fd): SocketEnds;
}

interface Offered {
  readonly connection: Connection;
  readonly socket: Fd | undefined;
}

export interface Looked {
  readonly connection: Connection;
  /** Undefined when there is no socket, or none of a connection that can be promoted. */
  readonly identity: IdentityAnswer;
  readonly hasSocket: boolean;
}

export class OfferedSockets implements Disposable {
  readonly #reader: SocketReader;
  #offered: Offered[] = [];

  constructor(reader: SocketReader) {
    this.#reader = reader;
  }

  get isFull(): boolean {
    return this.#offered.length >= MAX_SOCKETS;
  }

  /** Takes the socket over. */
  add(connection: Connection, socket: Fd | undefined): void {
    this.#offered.push({ connection, socket });
  }

  /** Looks at all of them, and closes them. */
  look(): readonly Looked[] {
    if (this.#offered.length === 0) return [];
    const offered = this.#offered;
    this.#offered = [];
    const identities = this.#identities(offered.map(({ socket }) => socket));
    for (const { connection, socket } of offered) {
      if (socket !== undefined) connection.ends = this.#reader.readEnds(socket);
    }
    closeAll(offered);
    return offered.map(({ connection, socket }, index) => {
      return { connection, identity: identities[index], hasSocket: socket !== undefined };
    });
  }

  close(): void {
    closeAll(this.#offered.splice(0));
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #identities(sockets: readonly (Fd | undefined)[]): readonly IdentityAnswer[] {
    try {
      return this.#reader.readIdentities(sockets);
    } catch {
      // The system is out of memory or descriptors: these connections stay what they are.
      return [];
    }
  }
}

/**
 * At once: another descriptor of a socket holds back its FIN. Each program waits only for its own
 * sockets.
 */
function closeAll(offered: readonly Offered[]): void {
  for (const own of Map.groupBy(offered, ({ connection }) => connection.program).values()) {
    Fd.closeAside(own.map(({ socket }) => socket).filter((socket) => socket !== undefined));
  }
}
