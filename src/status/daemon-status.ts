// What a daemon tells of itself: plain data that the API serves, commands print and metrics count.

/** How a connection's bytes travel. `plain`: by the kernel's TCP, and `reason` says why. */
export type ConnectionMode = 'carried' | 'shortcut' | 'plain';

export interface ConnectionStatus {
  /** As the program sees it, `10.0.0.1:40000` or `[fd00::1]:40000`. */
  readonly local: string;
  readonly remote: string;
  /** `out`: a program of this host connected. `in`: a program of the peer's host did. */
  readonly direction: 'out' | 'in';
  readonly mode: ConnectionMode;
  /** `opening`, `open`, `closing`; `-` of one that is left to TCP, which nobody follows. */
  readonly state: string;
  /** Why it is not carried; '' when it is. */
  readonly reason: string;
  /** '' when plain. */
  readonly peer: string;
  /** `shm`, `roce`, `tcp`, `RoCEv2`, `InfiniBand`; '' when plain. */
  readonly wire: string;
  readonly lane: number;
  readonly stream: number;
  readonly command: string;
  readonly pid: number;
  readonly bytesOut: number;
  readonly bytesIn: number;
  /** Taken from the peer, and waiting for the program to read it. */
  readonly heldBytes: number;
  /** ms since the epoch. */
  readonly sinceMs: number;
}

export type LinkState = 'connecting' | 'up' | 'recovering' | 'down';

/** One lane's channel to one peer. */
export interface LinkStatus {
  readonly index: number;
  readonly lane: number;
  readonly state: LinkState;
  readonly wire: string;
  /** The ring is written in place in the peer's memory. */
  readonly inPlace: boolean;
  readonly streams: number;
  readonly bytesOut: number;
  readonly bytesIn: number;
  readonly recordsOut: number;
  readonly recordsIn: number;
  /** WRITEs posted, work requests in them, notifications sent and received, times the lane slept. */
  readonly posts: number;
  readonly notificationsOut: number;
  readonly notificationsIn: number;
  readonly recoveries: number;
  /** Of the outgoing ring: slots that the peer has not read yet, and how many there are. */
  readonly slotsUsed: number;
  readonly slots: number;
  readonly heldBytes: number;
  /** Of the last heartbeat; -1 before the first. */
  readonly roundTripUs: number;
}

export type PeerState = 'up' | 'connecting' | 'recovering' | 'down';

export interface PeerStatus {
  readonly name: string;
  readonly address: string;
  /** `config` or `etcd`. */
  readonly source: string;
  readonly state: PeerState;
  /** Why it is not up; '' when it is. */
  readonly reason: string;
  /** When the state changed, ms since the epoch. */
  readonly sinceMs: number;
  readonly isSecure: boolean;
  readonly listeners: number;
  readonly links: readonly LinkStatus[];
}

export interface LaneStatus {
  readonly index: number;
  readonly connections: number;
  readonly turns: number;
  readonly sleeps: number;
  readonly heldBytes: number;
  readonly cpuSeconds: number;
}

export interface DaemonStatus {
  readonly v: 1;
  readonly node: string;
  readonly instance: string;
  readonly version: string;
  readonly pid: number;
  readonly startedMs: number;
  readonly state: 'starting' | 'ready' | 'draining';
  /** What keeps it from being ready, in words; empty when it is. */
  readonly notReady: readonly string[];
  readonly cgroup: string;
  readonly rules: readonly string[];
  readonly peers: readonly PeerStatus[];
  readonly lanes: readonly LaneStatus[];
  /** Connects by what the kernel's hook decided, by the verdicts' names (see steering). */
  readonly verdicts: Readonly<Record<string, number>>;
  readonly counters: {
    readonly opened: number;
    readonly accepted: number;
    readonly refused: number;
    readonly resets: number;
    readonly strangers: number;
    readonly bytesOut: number;
    readonly bytesIn: number;
  };
  readonly memory: { readonly rssBytes: number; readonly heldBytes: number; readonly budgetBytes: number };
  readonly cpuSeconds: number;
}

/** What stands behind the API. */
export interface StatusSource {
  status(): Promise<DaemonStatus>;
  /** Carried ones, those that took the shortcut as far as is known, and recent ones that were not carried, with the reason. */
  connections(): Promise<readonly ConnectionStatus[]>;
  /** Why this connection is or is not carried: lines for people. */
  explain(which: string): Promise<readonly string[]>;
  reload(): Promise<readonly string[]>;
  /** Breaks the transports to a peer, to show that they recover. Absent unless the daemon was started for such trials. */
  readonly breakLinks?: ((peer: string) => Promise<readonly string[]>) | undefined;
}
