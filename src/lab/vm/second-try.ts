// Booting once more. On an emulated processor (QEMU 7.2) V8 crashes now and then while it compiles, and the agent that
// makes a guest usable runs on it.

import { MillraceError } from '../../errors.ts';

/** Only for guests that did not come up: mistakes of the caller, and what was aborted, stay as they are. */
export async function withSecondTry<T>(signal: AbortSignal | undefined, boot: () => Promise<T>): Promise<T> {
  try {
    return await boot();
  } catch (error) {
    const mayTryAgain = error instanceof MillraceError && error.code === 'MILLRACE_ERR_FAILED';
    if (!mayTryAgain || signal?.aborted === true) throw error;
    return boot();
  }
}
