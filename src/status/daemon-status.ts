// The status of a daemon: plain data that the API serves, commands print and metrics are made from.

/**
 * How a connection's bytes travel. `plain`: by the kernel's TCP, and `reason` says why. `direct`:
 * from program to program; over a wire where the other one is on the host of a peer.
 */
export type ConnectionMode = 'carried' | 'direct' | 'shortcut' | 'plain';

export interface ConnectionStatus {
  /** As the program sees it, `10.0.0.1:40000` or `[fd00::1]:40000`. */
  readonly local: string;
  readonly remote: string;
  /**
   * `out`: a program of this host connected. `in`: it accepted. Each end of a direct connection
   * between programs of this host is one of these.
   */
  readonly direction: 'out' | 'in';
  readonly mode: ConnectionMode;
  /**
   * `opening`, `open`, `closing`; `-` when it is left to plain TCP, whose state is not followed.
   */
  readonly state: string;
  /** Why it is not carried; '' when it is. */
  readonly reason: string;
  /** '' when plain, and of a direct connection within this host. */
  readonly peer: string;
  /** `shm`, `roce`, `tcp`, `RoCEv2`, `InfiniBand`; '' when there is no peer. */
  readonly wire: string;
  readonly lane: number;
  readonly stream: number;
  readonly command: string;
  readonly pid: number;
  /** The cookie of the program's network namespace; 0 when it is not known. */
  readonly netns: number;
  /** The name of the cgroup of a program in a network namespace of its own; '' for others. */
  readonly container: string;
  /** Null when nobody counts them: those of a direct connection within this host. */
  readonly bytesOut: number | null;
  readonly bytesIn: number | null;
  /**
   * Bytes that came from the peer and wait for the program to read them; null when it is direct.
   */
  readonly heldBytes: number | null;
  /** When it was opened, or became direct; ms since the epoch. */
  readonly sinceMs: number;
}

/**
 * `idle`: it is made when something uses it. `down`: it broke for good or could not be made, and is
 * tried again.
 */
export type LinkState = 'idle' | 'connecting' | 'up' | 'recovering' | 'down';

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
  /** Batches of WRITEs posted; 0 on a link that writes in place. */
  readonly posts: number;
  readonly notificationsOut: number;
  readonly notificationsIn: number;
  readonly recoveries: number;
  /** Slots of the outgoing ring that the peer has not confirmed as read, and all of its slots. */
  readonly slotsUsed: number;
  readonly slots: number;
  readonly heldBytes: number;
  /** Round trip of the last ping through the rings; -1 before the first. */
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
  /** Since when it gives no sign of life; 0 while it does. The other figures are the last known. */
  readonly stuckSeconds: number;
}

/** Programs of this host that have the library, and their connections. */
export interface DirectStatus {
  /** Programs that are connected to the daemon now. */
  readonly programs: number;
  /** Connections of which one end only was offered. */
  readonly waiting: number;
  /** Connections whose bytes go from program to program now. */
  readonly connections: number;
  /** Those of them whose other end is on the host of a peer. */
  readonly mirrored: number;
  /** All that were promoted since the start. */
  readonly promoted: number;
  /** Offers that were declined since the start. */
  readonly declined: number;
}

export interface DaemonStatus {
  readonly v: 1;
  readonly node: string;
  readonly instance: string;
  readonly version: string;
  readonly pid: number;
  readonly startedMs: number;
  readonly state: 'starting' | 'ready' | 'draining';
  /** Why it is not ready, one reason an item; empty when it is. */
  readonly notReady: readonly string[];
  readonly cgroup: string;
  readonly rules: readonly string[];
  readonly peers: readonly PeerStatus[];
  readonly lanes: readonly LaneStatus[];
  /** Connects by the verdict of the kernel's hook. */
  readonly verdicts: Readonly<Record<string, number>>;
  /** Listeners of peers that the kernel's table has no room for: connects to them are plain TCP. */
  readonly listenersLeftOut: number;
  /** Of programs that connect or listen, which came faster than the daemon could take them. */
  readonly lostEvents: number;
  /** While it has few descriptors left, new connections are plain TCP. */
  readonly overload: {
    readonly isOverloaded: boolean;
    /** In use, at least. */
    readonly descriptors: number;
    readonly maxDescriptors: number;
  };
  readonly counters: {
    readonly opened: number;
    readonly accepted: number;
    readonly refused: number;
    readonly resets: number;
    /** Unsteered connections to the daemon's listener. */
    readonly unsteered: number;
    readonly bytesOut: number;
    readonly bytesIn: number;
  };
  readonly direct: DirectStatus;
  readonly memory: { readonly rssBytes: number; readonly heldBytes: number; readonly budgetBytes: number };
  readonly cpuSeconds: number;
}

/** Where the API takes its answers from. */
export interface StatusSource {
  status(): Promise<DaemonStatus>;
  /**
   * Carried and direct connections, and recent ones that were not carried or took the shortcut,
   * with the reason.
   */
  connections(): Promise<readonly ConnectionStatus[]>;
  /** Why this connection is or is not carried: lines for people. */
  explain(which: string): Promise<readonly string[]>;
  reload(): Promise<readonly string[]>;
  /**
   * Breaks the transports to a peer, to show that they recover. Absent unless MILLRACE_ALLOW_BREAK
   * is 1.
   */
  readonly breakLinks?: ((peer: string) => Promise<readonly string[]>) | undefined;
}
