// Keeps the last connections that were not carried, with the reason, for `millrace conn`, and
// publishes an event for each.

import type { ConnectionStatus } from '../status/index.ts';
import { isConnectionHeard, publishConnection } from '../status/index.ts';
import { type Connection, formatIpEndpoint, verdictName, verdictWords } from '../steering/index.ts';

const KEPT = 256;

export class PlainLog {
  readonly #kept: ConnectionStatus[] = [];

  /** `detail`: what is known besides the verdict. */
  add(connection: Connection, detail: string): void {
    const verdict = verdictName(connection.verdict);
    if (verdict === 'carried' || verdict === 'own') return;
    const remote = formatIpEndpoint(connection.original);
    const isShortcut = verdict === 'shortcut';
    const words = verdictWords[verdict].replace(/^plain TCP: /, '');
    const status: ConnectionStatus = {
      // The hook decides before most sockets have a local port.
      local: connection.source.port === 0 ? '*' : formatIpEndpoint(connection.source),
      remote,
      direction: 'out',
      mode: isShortcut ? 'shortcut' : 'plain',
      // What becomes of a plain connection is not followed.
      state: '-',
      reason: isShortcut ? '' : detail === '' ? words : `${words} (${detail})`,
      peer: '',
      wire: '',
      lane: -1,
      stream: -1,
      command: connection.command,
      pid: connection.pid,
      netns: connection.netns,
      container: '',
      bytesOut: 0,
      bytesIn: 0,
      heldBytes: 0,
      sinceMs: Date.now(),
    };
    this.#kept.push(status);
    if (!isShortcut && isConnectionHeard()) publishPlain(status);
    if (this.#kept.length > 2 * KEPT) this.#kept.splice(0, KEPT);
  }

  get recent(): readonly ConnectionStatus[] {
    return this.#kept.slice(-KEPT);
  }
}

function publishPlain(status: ConnectionStatus): void {
  const { local, remote, direction, mode, peer, wire, command, pid, bytesOut, bytesIn, reason } = status;
  const ends = { local, remote, direction };
  publishConnection({ what: 'plain', ...ends, mode, peer, wire, command, pid, bytesOut, bytesIn, reason });
}
