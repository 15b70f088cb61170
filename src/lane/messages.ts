// Messages between the daemon's main thread and its lanes: plain data, by message port.

import type { SessionState } from '../channel/index.ts';
import type { ChannelConfig, DeviceConfig } from '../config/index.ts';
import type { MirrorOrder } from '../direct/arena/index.ts';
import type { Address } from '../native/index.ts';
import type { ConnectionEvent, ConnectionStatus, DaemonStatus, LaneStatus, LinkStatus } from '../status/index.ts';
import type { IpEndpoint } from '../steering/index.ts';

export interface LaneSettings {
  readonly index: number;
  readonly lanes: number;
  readonly instance: string;
  /**
   * Where it accepts clients in the daemon's own network namespace, once for each address family.
   */
  readonly listen: readonly Address[];
  readonly devices: readonly string[];
  readonly device: DeviceConfig;
  readonly channel: ChannelConfig;
  readonly socketBufferBytes: number;
  /** Streams need a gate. */
  readonly asksPackets: boolean;
  readonly watchdog: WatchdogSettings;
  /** Of `Descriptors`: what the process has left. */
  readonly descriptors: SharedArrayBuffer;
  /** An eventfd that the main thread signals after each message. */
  readonly wakeFd: number;
}

/** How the threads of the daemon watch each other. */
export interface WatchdogSettings {
  /** Of `SignsOfLife`. */
  readonly signs: SharedArrayBuffer;
  /** For the line that a lane writes when the main thread is stuck. */
  readonly node: string;
  readonly stuckMs: number;
  readonly giveUpMs: number;
}

/** Servers, for peers that may connect to the same ones. */
export interface ListenerList {
  readonly peers: readonly string[];
  /** IP endpoints in text, and the network namespaces that they are in. */
  readonly servers: readonly { readonly endpoint: string; readonly netns: number }[];
}

export type ToLane =
  | {
      readonly kind: 'peerUp';
      readonly peer: string;
      readonly isDialer: boolean;
      readonly isSame: boolean;
      readonly links: readonly number[];
    }
  | { readonly kind: 'peerDown'; readonly peer: string }
  /** The peer's daemon has ended: streams need not wait for it. */
  | { readonly kind: 'peerDead'; readonly peer: string }
  /** The peer left the directory, or hung up: its streams end. */
  | { readonly kind: 'peerGone'; readonly peer: string; readonly reason: string }
  | { readonly kind: 'link'; readonly peer: string; readonly link: number; readonly body: object }
  /** Something is about to use that link: it is made unless it is there. */
  | { readonly kind: 'want'; readonly peer: string; readonly link: number }
  /** What listens at a peer, as IP endpoints in text. */
  | {
      readonly kind: 'routes';
      readonly peer: string;
      readonly added: readonly string[];
      readonly removed: readonly string[];
    }
  /** The addresses that clients of a peer may have. */
  | { readonly kind: 'clients'; readonly peer: string; readonly hosts: readonly string[] }
  /** What each peer may connect to on this host; others may connect to nothing. */
  | { readonly kind: 'listeners'; readonly lists: readonly ListenerList[] }
  /** The servers of one of these lists, by its number, have changed. */
  | {
      readonly kind: 'listenersChanged';
      readonly list: number;
      readonly added: ListenerList['servers'];
      readonly removed: readonly string[];
    }
  /**
   * Where a peer's packets get to: its clients at `from` that want to go to `to` are brought to the
   * server `at`, in that network namespace, where they are known as `client`.
   */
  | {
      readonly kind: 'gates';
      readonly peer: string;
      readonly opened: readonly {
        readonly from: string;
        readonly to: string;
        readonly at: IpEndpoint;
        readonly netns: number;
        readonly client: string;
      }[];
      readonly closed: readonly { readonly from: string; readonly to: string }[];
    }
  /**
   * Clients in another network namespace are accepted, at these addresses of it. `fd` stands for
   * it, and stays open until the lane has heard this.
   */
  | { readonly kind: 'serveNetns'; readonly netns: number; readonly fd: number; readonly hosts: readonly string[] }
  | { readonly kind: 'leaveNetns'; readonly netns: number }
  | MirrorOrder
  | { readonly kind: 'ask'; readonly id: number; readonly what: 'status' | 'connections' | 'nothing' }
  /** Breaks the links with the peer on purpose, for tests. */
  | { readonly kind: 'break'; readonly peer: string }
  /** Whether somebody subscribes to events of single connections. */
  | { readonly kind: 'subscribe'; readonly isSubscribed: boolean }
  | { readonly kind: 'close' };

/** The lane's part of the daemon's counters, and what it has open. */
export interface LaneReport extends Readonly<DaemonStatus['counters']> {
  readonly lane: LaneStatus;
  readonly links: readonly (LinkStatus & { readonly peer: string })[];
}

/** What a lane knows of a direct stream. */
export interface MirroredStatus {
  /** By which the main thread knows the connection. */
  readonly key: string;
  readonly wire: string;
  readonly lane: number;
  readonly stream: number;
  readonly bytesOut: number;
  readonly bytesIn: number;
}

/** Carried connections, and what is known of mirrored ones. */
export interface LaneConnections {
  readonly carried: readonly ConnectionStatus[];
  readonly mirrored: readonly MirroredStatus[];
}

export type FromLane =
  | { readonly kind: 'ready' }
  | { readonly kind: 'failed'; readonly reason: string }
  | { readonly kind: 'link'; readonly peer: string; readonly link: number; readonly body: object }
  | {
      readonly kind: 'state';
      readonly peer: string;
      readonly link: number;
      readonly state: SessionState;
      readonly reason: string;
      readonly wire: string;
    }
  | { readonly kind: 'protocolError'; readonly peer: string; readonly reason: string }
  | { readonly kind: 'error'; readonly message: string }
  | { readonly kind: 'connection'; readonly event: ConnectionEvent }
  | {
      readonly kind: 'answer';
      readonly id: number;
      readonly report?: LaneReport;
      readonly connections?: LaneConnections;
    }
  /** The lane does not touch the slot any more; once for each `unmirror`. */
  | { readonly kind: 'unmirrored'; readonly arena: number; readonly slot: number }
  | { readonly kind: 'closed' };
