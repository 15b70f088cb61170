// Publishes an event for each connection that becomes direct, and that is not direct any more.

import { isConnectionHeard, publishConnection } from '../status/index.ts';
import type { Connection } from './connection.ts';

export class DirectEvents {
  readonly #wireOf: (peer: string, link: number) => string;

  constructor(wireOf: (peer: string, link: number) => string) {
    this.#wireOf = wireOf;
  }

  promoted(connection: Connection): void {
    this.#publish('promoted', connection);
  }

  left(connection: Connection): void {
    this.#publish('left', connection);
  }

  #publish(what: 'promoted' | 'left', { program, ends, hasConnected, mirror }: Connection): void {
    if (!isConnectionHeard()) return;
    const { local, remote } = ends;
    const { pid, command } = program;
    publishConnection({
      what,
      local,
      remote,
      direction: hasConnected ? 'out' : 'in',
      mode: 'direct',
      peer: mirror?.peer ?? '',
      wire: mirror === undefined ? '' : this.#wireOf(mirror.peer, mirror.link),
      command,
      pid,
      bytesOut: null,
      bytesIn: null,
      reason: '',
    });
  }
}
