// What a lane tells of one connection, for who listens: opened, closed in order or not, or not wanted by the far end.

import { getSystemErrorName } from 'node:util';
import type { StreamAbout } from '../channel/index.ts';
import { formatAddress } from '../native/index.ts';
import type { ConnectionEvent } from '../status/index.ts';
import { endsOf } from './lane-status.ts';

/** What is known besides the two ends; of a stream, its counts and its refusal. */
export interface ConnectionNews {
  readonly wire?: string;
  readonly bytesOut?: number;
  readonly bytesIn?: number;
  /** The errno with which the server was not reached; 0 when it was. */
  readonly refusal?: number;
  readonly reason?: string;
}

export function connectionEvent(
  what: 'opened' | 'closed' | 'refused',
  about: StreamAbout,
  peer: string,
  { wire = '', bytesOut = 0, bytesIn = 0, refusal = 0, reason }: ConnectionNews,
): ConnectionEvent {
  const [here, there] = endsOf(about);
  const { command, pid, isOpener } = about;
  return {
    what,
    local: formatAddress(here),
    remote: formatAddress(there),
    direction: isOpener ? 'out' : 'in',
    mode: 'carried',
    peer,
    wire,
    command,
    pid,
    bytesOut,
    bytesIn,
    reason: reason ?? (refusal === 0 ? '' : `call the server: ${getSystemErrorName(-refusal)}`),
  };
}
