// Signs of life of the daemon's threads, and what is known of one that is stuck.

export { MAIN_THREAD, SignsOfLife } from './signs-of-life.ts';
export { placeOfMain, placeOfWorker } from './stuck-place.ts';
export { Watchdog } from './watchdog.ts';
