// What the daemon tells while it runs: the names and payloads of its diagnostics channels. Logs, /v1/events and programs subscribe.

import { type Channel, channel } from 'node:diagnostics_channel';
import type { ConnectionMode, LinkState, PeerState } from './daemon-status.ts';

export interface PeerEvent {
  readonly peer: string;
  readonly address: string;
  readonly state: PeerState;
  /** Why it is not up; '' when it is. */
  readonly reason: string;
}

export interface LinkEvent {
  readonly peer: string;
  readonly link: number;
  readonly lane: number;
  readonly state: LinkState;
  readonly wire: string;
  /** What made it recover or go down; '' when it is up. */
  readonly reason: string;
}

export interface ConnectionEvent {
  /** `refused`: the far end did not want it, or could not be reached. `plain`: it was left to the kernel's TCP. */
  readonly what: 'opened' | 'closed' | 'refused' | 'plain';
  readonly local: string;
  readonly remote: string;
  readonly direction: 'out' | 'in';
  readonly mode: ConnectionMode;
  readonly peer: string;
  readonly wire: string;
  readonly command: string;
  readonly pid: number;
  /** Of a closed one; 0 before. */
  readonly bytesOut: number;
  readonly bytesIn: number;
  /** Why it ended otherwise than in order, or is not carried; '' else. */
  readonly reason: string;
}

interface ErrorEvent {
  /** Which part met it: `steering`, `channel`, `etcd`, `config`… */
  readonly where: string;
  /** One line: what was attempted, on what, why it failed and what to do. */
  readonly message: string;
  /** `MILLRACE_ERR_…` or the errno name; '' when there is none. */
  readonly code: string;
  /** Whose doing it is; '' when no peer's. */
  readonly peer: string;
}

export interface DaemonEvent {
  readonly what: 'starting' | 'ready' | 'not-ready' | 'reloaded' | 'draining' | 'stopped';
  readonly node: string;
  readonly instance: string;
  /** One line for people, '' when the word says it all. */
  readonly detail: string;
}

export interface DaemonEvents {
  readonly peer: PeerEvent;
  readonly link: LinkEvent;
  readonly connection: ConnectionEvent;
  readonly error: ErrorEvent;
  readonly daemon: DaemonEvent;
}

export type EventKind = keyof DaemonEvents;

export const eventKindNames: readonly EventKind[] = ['peer', 'link', 'connection', 'error', 'daemon'];

/** Channels belong to a thread: a lane hands its events to the main thread, which publishes them. */
const channels: Readonly<Record<EventKind, Channel>> = {
  peer: channel('millrace:peer'),
  link: channel('millrace:link'),
  connection: channel('millrace:connection'),
  error: channel('millrace:error'),
  daemon: channel('millrace:daemon'),
};

export function publishPeer(event: PeerEvent): void {
  if (channels.peer.hasSubscribers) channels.peer.publish(event);
}

export function publishLink(event: LinkEvent): void {
  if (channels.link.hasSubscribers) channels.link.publish(event);
}

/** There are thousands a second of these: ask before making the event. */
export function isConnectionHeard(): boolean {
  return channels.connection.hasSubscribers;
}

export function publishConnection(event: ConnectionEvent): void {
  if (channels.connection.hasSubscribers) channels.connection.publish(event);
}

export function publishError(event: ErrorEvent): void {
  if (channels.error.hasSubscribers) channels.error.publish(event);
}

export function publishDaemon(event: DaemonEvent): void {
  if (channels.daemon.hasSubscribers) channels.daemon.publish(event);
}

/** Calls `listener` for every event of a kind until it is disposed of. Disposing twice is harmless. */
export function subscribe<K extends EventKind>(kind: K, listener: (event: DaemonEvents[K]) => void): Disposable {
  // Only the publish functions above should publish on these channels, and they take nothing else.
  const heard = (message: unknown): void => listener(message as DaemonEvents[K]);
  channels[kind].subscribe(heard);
  return {
    [Symbol.dispose]: () => {
      channels[kind].unsubscribe(heard);
    },
  };
}
