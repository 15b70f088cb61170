// The events of a daemon: the names and payloads of its diagnostics channels. Logs, /v1/events and
// programs subscribe.

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
  /**
   * `refused`: the server refused it, or no peer that announced it could be reached. `plain`: it
   * was left to plain TCP. `promoted`: it became direct. `left`: it is not direct any more, because
   * a program of this host closed it, went back to TCP with it, or has ended.
   */
  readonly what: 'opened' | 'closed' | 'refused' | 'plain' | 'promoted' | 'left';
  readonly local: string;
  readonly remote: string;
  readonly direction: 'out' | 'in';
  readonly mode: ConnectionMode;
  readonly peer: string;
  readonly wire: string;
  readonly command: string;
  readonly pid: number;
  /** 0 until the connection is closed; null when it is direct. */
  readonly bytesOut: number | null;
  readonly bytesIn: number | null;
  /** Why it did not end in order, or is not carried; '' otherwise. */
  readonly reason: string;
}

interface ErrorEvent {
  /** Which part met it: `steering`, `channel`, `etcd`, `config`… */
  readonly where: string;
  /** One line: what was attempted, on what, why it failed and what to do. */
  readonly message: string;
  /** `MILLRACE_ERR_…` or the errno name; '' when there is none. */
  readonly code: string;
  /** The peer that caused it; '' when none did. */
  readonly peer: string;
}

export interface DaemonEvent {
  readonly what: 'starting' | 'ready' | 'not-ready' | 'reloaded' | 'draining' | 'stopped';
  readonly node: string;
  readonly instance: string;
  /** One line for people, or ''. */
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

/**
 * Channels belong to a thread: a lane hands its events to the main thread, which publishes them.
 */
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

/** There may be thousands of these a second: ask before making the event. */
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

/**
 * Calls `listener` for every event of a kind until it is disposed of. Disposing twice is harmless.
 */
export function subscribe<K extends EventKind>(kind: K, listener: (event: DaemonEvents[K]) => void): Disposable {
  // Only the functions above publish on these channels, so the message has the type of its kind.
  const heard = (message: unknown): void => listener(message as DaemonEvents[K]);
  channels[kind].subscribe(heard);
  return {
    [Symbol.dispose]: () => {
      channels[kind].unsubscribe(heard);
    },
  };
}
