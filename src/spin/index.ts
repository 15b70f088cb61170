// Whether to spin or to sleep: policies that learn from how long waits took, and a table of their
// tunings.
//
// There are two. SpinPolicy is for threads that can sleep until they are woken: lanes, threads of
// the backend, and guests in a call. PollPolicy is for guests that poll: a poll must return to the
// program at once, so it cannot sleep until it is woken, and it must not read the clock at every
// poll, which costs as much as the poll itself. It counts misses instead, and naps. Both use
// BackOff. Engines of vortex sleep in epoll and do not spin; only their tuning stands here.

export { PollPolicy } from './poll-policy.ts';
export { SpinPolicy } from './spin-policy.ts';
export { tunings } from './tunings.ts';
export { spinNsOf, type WaitMode, waitModes } from './wait-mode.ts';
