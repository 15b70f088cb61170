// The tunings of all who spin, side by side. The numbers were measured where each of them works;
// see ARCHITECTURE.md.

import type { PollTuning } from './poll-policy.ts';
import type { SpinTuning } from './spin-policy.ts';

const US = 1000;
const MS = 1_000_000;

/** Guest and backend wait for each other: a call is answered within microseconds, or takes long. */
const remoting: SpinTuning = {
  assumedWaitNs: 0,
  maxWaitNs: 400 * US,
  share: 1 / 4,
  wakeNs: 50 * US,
  worthwhileNs: 100 * US,
  spareNs: 10 * US,
  maxSpinNs: 100 * US,
  interruptionNs: 500 * US,
  longYieldNs: Number.POSITIVE_INFINITY,
  backOff: { firstNs: 5 * MS, longestNs: 20 * MS, forgetNs: 40 * MS },
  backOffSpinNs: 10 * US,
  maxMisses: 6,
};

/**
 * A lane waits for programs that may need its processor, so it yields between two spins: a program
 * that waits for the processor runs at once, and the lane then finds all that it did together.
 * Yielding to a task that never sleeps costs milliseconds, so after such a yield the lane sleeps
 * for a time instead. That is short at first: it may have been a task that is done, and of our own.
 * A long wait counts as up to 20 ms, so that a lane which only heartbeats wake does not spin.
 */
const lane: SpinTuning = {
  assumedWaitNs: 2 * MS,
  maxWaitNs: 20 * MS,
  share: 1 / 8,
  wakeNs: 0,
  worthwhileNs: MS,
  spareNs: 50 * US,
  maxSpinNs: 300 * US,
  interruptionNs: Number.POSITIVE_INFINITY,
  longYieldNs: MS,
  backOff: { firstNs: 5 * MS, longestNs: 1280 * MS, forgetNs: 10 * MS },
  backOffSpinNs: 0,
  maxMisses: 0,
};

/** A guest polls completions of a remote device: 512 misses take about 100 us. */
const guestPoll: PollTuning = {
  manyMisses: 128,
  morePauses: 5,
  missesPerClock: 64,
  missesPerCheck: 512,
  tightNs: 64 * US,
  interruptionNs: 300 * US,
  interruptedShare: 0.3,
  windowNs: 20 * MS,
  backOff: { firstNs: 20 * MS, longestNs: 320 * MS, forgetNs: 640 * MS },
  maxNapNs: 200 * US,
  minNapNs: 50 * US,
  longWaitNs: 300 * US,
  napShare: 0.5,
};

/** For a thread whose own epoll is inside Node's event loop. It does not spin. */
interface OwnEpollTuning {
  /** After so long without an event, sleeping is left to Node's event loop. */
  readonly sleepNs: number;
  /** Node's event loop has to wait so long at most. */
  readonly sliceNs: number;
}

/**
 * Engines of streams move whole blocks: going through Node's event loop costs some 10 us for every
 * event.
 */
const vortexEngine: OwnEpollTuning = { sleepNs: MS, sliceNs: 8 * MS };

export const tunings = { lane, backendThread: remoting, guestCall: remoting, guestPoll, vortexEngine } as const;
