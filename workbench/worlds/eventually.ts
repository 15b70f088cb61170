// Waiting for what no event tells: the kernel's doing, or another process's.

import { setTimeout as sleep } from 'node:timers/promises';

/** For everything that a test waits for; nothing takes longer on a busy machine. */
export const TIMEOUT_MS = 20_000;
const INTERVAL_MS = 5;

/** Asks every few milliseconds until it is so. */
export async function eventually(
  what: string,
  isSo: () => boolean | undefined | Promise<boolean>,
  timeoutMs: number = TIMEOUT_MS,
): Promise<void> {
  const endMs = performance.now() + timeoutMs;
  while ((await isSo()) !== true) {
    if (performance.now() > endMs) throw new Error(`not within ${timeoutMs} ms: ${what}`);
    await sleep(INTERVAL_MS);
  }
}
