// Which of the daemon's connections a request is about.

import type { ConnectionMode, ConnectionStatus } from '../status/index.ts';

export interface ConnectionFilter {
  readonly peer?: string;
  readonly mode?: ConnectionMode;
  /** A part of the address, as `:6379` or `10.0.0.`. */
  readonly local?: string;
  readonly remote?: string;
}

export const connectionModes: readonly ConnectionMode[] = ['carried', 'direct', 'shortcut', 'plain'];
export const filterKeys: ReadonlySet<string> = new Set(['peer', 'mode', 'local', 'remote']);

export function isConnectionMode(word: string): word is ConnectionMode {
  return (connectionModes as readonly string[]).includes(word);
}

export function selectConnections(
  all: readonly ConnectionStatus[],
  { peer, mode, local = '', remote = '' }: ConnectionFilter,
): readonly ConnectionStatus[] {
  return all.filter(
    (one) =>
      (peer === undefined || one.peer === peer) &&
      (mode === undefined || one.mode === mode) &&
      one.local.includes(local) &&
      one.remote.includes(remote),
  );
}
