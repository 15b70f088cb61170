// What people are told of connections that programs have offered.

import { otherParty } from './arenas.ts';
import { type Connection, partyIn } from './connection.ts';

export interface OfferReport {
  readonly pid: number;
  readonly command: string;
  readonly local: string;
  readonly remote: string;
  readonly remoteHost: string;
  readonly netns: number;
  /** `leaving`: the other end has left it, and this one is asked to. `left`: by its lane. */
  readonly state: 'waiting' | 'direct' | 'leaving' | 'declined' | 'left';
  /** Why it was declined, or left; '' otherwise. */
  readonly reason: string;
  readonly direction: 'out' | 'in';
  /** Where the other end is; '' for this host, and when it is not known. */
  readonly peer: string;
  /** By which lanes know it; '' when none does. */
  readonly key: string;
  /** The program at the other end, if it is on this host: `redis-server(4711)`. */
  readonly other: string;
  /** When it became direct, in ms since the epoch; 0 before. */
  readonly promotedMs: number;
}

export function reportOf(connection: Connection): OfferReport {
  const { program, ends, hasConnected, promotedMs, promotion, mirror } = connection;
  const { pid, command } = program;
  const other = promotion?.ends[otherParty(partyIn(promotion, connection))]?.program;
  const isLeaving = promotion !== undefined && other === undefined;
  return {
    pid,
    command,
    ...ends,
    state: promotedMs === 0 ? 'waiting' : isLeaving ? 'leaving' : 'direct',
    reason: '',
    direction: hasConnected ? 'out' : 'in',
    peer: mirror?.peer ?? '',
    key: mirror?.key ?? '',
    other: other === undefined ? '' : `${other.command}(${other.pid})`,
    promotedMs,
  };
}
