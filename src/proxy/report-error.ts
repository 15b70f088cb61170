// Error events of the daemon, and of what can fail again and again.

import { publishError } from '../status/index.ts';
import { ErrorThrottle } from './control/index.ts';

/** For errors that peers, programs or a shortage can cause again and again. */
export function throttled(where: string): ErrorThrottle {
  return new ErrorThrottle((message, peer) => reportError(where, message, '', peer));
}

export function reportError(where: string, message: string, code: string, peer = ''): void {
  publishError({ where, message, code, peer });
}
