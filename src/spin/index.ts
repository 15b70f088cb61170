// How long to spin before sleeping, learnt from how long waits take.

export { AdaptiveWait, type WaitMode, waitModes } from './adaptive-wait.ts';
