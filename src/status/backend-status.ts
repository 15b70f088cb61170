// What a backend says about itself and its guests: plain data, for commands and metrics.

/** Of one guest. */
export interface GuestLimits {
  readonly devices: number;
  readonly pds: number;
  /** Pieces of memory that regions are on. */
  readonly memories: number;
  readonly regions: number;
  /** Keys of regions that open them to one QP. */
  readonly grants: number;
  /** Of regions and rings together. */
  readonly memoryBytes: number;
  readonly cqs: number;
  readonly srqs: number;
  readonly qps: number;
  readonly addressHandles: number;
  /** Places in all queues of requests together: what can be under way at once. */
  readonly operations: number;
  /** Of the backend's process, at most, by all objects of the guest together. */
  readonly descriptors: number;
  readonly mappings: number;
}

/** What a session has done so far. */
export interface SessionCounts {
  calls: number;
  failedCalls: number;
  posted: number;
  completions: number;
  failedCompletions: number;
  events: number;
  doorbells: number;
}

/** What the thread of a guest knows of it. */
export interface GuestReport {
  /** What the guest calls itself; '' when it did not say. */
  readonly label: string;
  readonly counts: Readonly<SessionCounts>;
  /** What it has, by the names of the limits. */
  readonly used: Readonly<Record<keyof GuestLimits, number>>;
  readonly objects: number;
  readonly turns: number;
  /** How often the thread went to sleep, and what waits take on average. */
  readonly sleeps: number;
  readonly averageWaitNs: number;
  readonly cpuSeconds: number;
}

export interface GuestStatus extends GuestReport {
  readonly id: number;
  /** `pid 4711 of uid 1000`, say. */
  readonly peer: string;
  readonly connectedMs: number;
  /** Since the last status, or since it came. */
  readonly perSecond: { readonly calls: number; readonly posted: number; readonly completions: number };
}

export interface BackendStatus {
  readonly socketPath: string;
  readonly devices: readonly string[];
  readonly limits: GuestLimits;
  readonly maxGuests: number;
  /** What all guests have of the backend's process, at most, and what they may have. */
  readonly host: Readonly<Record<'descriptors' | 'mappings', { readonly used: number; readonly limit: number }>>;
  readonly guests: readonly GuestStatus[];
  /** So far. */
  readonly accepted: number;
  readonly refused: number;
  /** Guests that were dropped because they broke the rules. */
  readonly dropped: number;
}
