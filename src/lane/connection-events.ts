// Counts the connections of a lane and, while somebody subscribes to them, publishes an event for
// each one that opens, closes or is refused.

import { getSystemErrorName } from 'node:util';
import type { Stream, StreamInfo } from '../channel/index.ts';
import { formatAddress } from '../native/index.ts';
import type { ConnectionEvent, DaemonStatus } from '../status/index.ts';
import { endsOf } from './lane-status.ts';
import type { FromLane } from './messages.ts';

type Counters = Omit<DaemonStatus['counters'], 'bytesIn' | 'bytesOut'>;
type MutableCounters = { -readonly [Name in keyof Counters]: Counters[Name] };

/** What is known of a connection besides its two ends. */
interface Details {
  readonly wire?: string;
  readonly bytesOut?: number;
  readonly bytesIn?: number;
  readonly reason?: string;
}

export class ConnectionEvents {
  readonly #tell: (message: FromLane) => void;
  readonly counters: MutableCounters = { opened: 0, accepted: 0, refused: 0, resets: 0, unsteered: 0 };
  /** Somebody subscribes to events of single connections. */
  isSubscribed = false;

  constructor(tell: (message: FromLane) => void) {
    this.#tell = tell;
  }

  opened(info: StreamInfo, peer: string, wire = ''): void {
    this.counters.opened++;
    this.#publish('opened', info, peer, { wire });
  }

  refused(info: StreamInfo, peer: string, reason: string): void {
    this.counters.refused++;
    this.#publish('refused', info, peer, { reason });
  }

  /** The socket of a stream is closed; a stream with a `refusal` never reached its server. */
  closed(stream: Stream, peer: string): void {
    const { info, refusal, bytesIn, bytesOut } = stream;
    const reason = refusal === 0 ? '' : `connect to the server: ${getSystemErrorName(-refusal)}`;
    this.#publish(refusal === 0 ? 'closed' : 'refused', info, peer, { bytesIn, bytesOut, reason });
  }

  /** Something failed that a person may want to know of. */
  error(message: string): void {
    this.#tell({ kind: 'error', message });
  }

  #publish(what: ConnectionEvent['what'], info: StreamInfo, peer: string, details: Details): void {
    if (!this.isSubscribed) return;
    this.#tell({ kind: 'connection', event: connectionEvent(what, info, peer, details) });
  }
}

function connectionEvent(
  what: ConnectionEvent['what'],
  info: StreamInfo,
  peer: string,
  { wire = '', bytesOut = 0, bytesIn = 0, reason = '' }: Details,
): ConnectionEvent {
  const [here, there] = endsOf(info);
  const { command, pid, isOpener } = info;
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
    reason,
  };
}
