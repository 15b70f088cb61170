// The call protocol of remoting, version 1: what is where in the call area and in the rings, and
// which calls there are.
//
// Everything is in 32-bit words of shared memory. Words of one writer share a cache line (16 words)
// with nobody else's.
//
// A call. The guest writes the arguments, their number and the call's number, then `callSequence`,
// and rings the doorbell if the backend sleeps. The backend copies the arguments, carries the call
// out, writes the result or the error, then `replySequence`, and rings the doorbell if the guest
// waits. One call at a time. Before it carries out a call, the backend takes everything that was
// posted before it, so calls and posts keep the order in which the program made them.
//
// Posting. A request ring has `produced`, written by the guest, and `completed`, written by the
// backend: how many requests are done. A place is free when its request is done, as in a device's
// own queue, and not already when the backend has read it: so the guest sees a queue of exactly the
// size that it asked for.
//
// Completions. A completion ring has `produced`, written by the backend, and `consumed`, written by
// the guest. A guest that wants an event writes `armed`; the backend takes it back when it gives
// the event.
//
// Sleeping. The side that is about to sleep stores its flag, then loads everything once more, then
// sleeps. The side that has something for it stores that, then loads the flag. All four accesses
// are sequentially consistent, so at least one of the two sides sees the other's store: no wake-up
// is lost.

export const PROTOCOL_VERSION = 1;
/** `MLRC` */
export const PROTOCOL_MAGIC = 0x4352_4c4d;

export const CALL_AREA_BYTES = 65_536;

/** Words of the call area. */
export const areaWord = {
  magic: 0,
  version: 1,
  /** Guest: counts calls; the number of the call and of its argument words. */
  callSequence: 16,
  callId: 17,
  argumentCount: 18,
  /** Backend: the last call that is done, whether it failed, and the number of its result words. */
  replySequence: 32,
  replyStatus: 33,
  resultCount: 34,
  /** Set by the backend before it sleeps; cleared by the side that ends the sleep. */
  backendSleeps: 48,
  /** Set by the guest before it sleeps on a call; cleared by the backend. */
  guestWaits: 64,
  /**
   * Set by the backend when it rings for an event; cleared by the guest before it attends. So
   * doorbells are merged under load.
   */
  guestRung: 80,
  /** Backend: counts device events; the guest fetches them by a call. */
  eventCount: 96,
  arguments: 128,
  results: 8192,
} as const;

/** Words that arguments or results may have. */
export const MAX_CALL_WORDS = 8064;

export const replyStatuses = { done: 0, failed: 1 } as const;

/**
 * A call's number never changes its meaning. Arguments and results are in remoting/backend/calls
 * and providers/remote.
 */
export const calls = {
  hello: 1,
  listDevices: 2,
  openDevice: 3,
  closeDevice: 4,
  ports: 5,
  counters: 6,
  takeEvents: 7,
  createPd: 10,
  closePd: 11,
  allocate: 12,
  adopt: 13,
  free: 14,
  registerMr: 15,
  closeMr: 16,
  grant: 17,
  revoke: 18,
  createCq: 20,
  closeCq: 21,
  createSrq: 30,
  closeSrq: 31,
  setSrqLimit: 32,
  createQp: 40,
  closeQp: 41,
  modifyQp: 42,
  qpState: 43,
  createAh: 50,
  closeAh: 51,
} as const;

export type CallName = keyof typeof calls;

/** Words of a ring of requests, before its rows. */
export const requestRing = { produced: 0, completed: 16, rows: 32 } as const;

/** Words of a ring of completions, before its rows. */
export const completionRing = {
  produced: 0,
  consumed: 16,
  /** 0, or one of `armings`. */
  armed: 32,
  /**
   * Set by a guest that naps between its polls: its doorbell is rung at the next completion,
   * without an event.
   */
  naps: 33,
  /**
   * Set by the backend when the ring is full and more is there; cleared by the guest when it has
   * made room.
   */
  wantsRoom: 48,
  rows: 64,
} as const;

export const armings = { none: 0, solicited: 1, any: 2 } as const;

/** Kinds of device events, in words. */
export const eventKinds = { qpFatal: 1, cqOverrun: 2, srqLimit: 3, portChange: 4, deviceGone: 5 } as const;
