// Boots a guest a second time. On an emulated processor (QEMU 7.2) V8, which runs the agent, now
// and then crashes while it compiles.

import { MillraceError } from '../../errors.ts';

/** Only if the guest did not boot: usage errors and aborts are thrown at once. */
export async function withSecondTry<T>(signal: AbortSignal | undefined, boot: () => Promise<T>): Promise<T> {
  try {
    return await boot();
  } catch (error) {
    const mayTryAgain = error instanceof MillraceError && error.code === 'MILLRACE_ERR_FAILED';
    if (!mayTryAgain || signal?.aborted === true) throw error;
    return boot();
  }
}
