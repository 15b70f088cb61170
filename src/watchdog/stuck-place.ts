// Where a stuck thread is, in one line: its JavaScript stack if it has one to tell, and the
// kernel's view of it.

import type { Worker } from 'node:worker_threads';
import { kernelPlace } from './kernel-place.ts';
import { stackOfMain, stackOfWorker } from './script-stack.ts';

/** A thread that runs JavaScript answers the debugger at once, when it gets the processor. */
const ANSWER_MS = 2000;

/** Of a worker of this thread. */
export async function placeOfWorker(worker: Worker, threadId: number): Promise<string> {
  return placeOf(threadId, await stackOf(threadId, () => stackOfWorker(worker, ANSWER_MS)));
}

/** Of the main thread, for its workers. */
export async function placeOfMain(threadId: number): Promise<string> {
  return placeOf(threadId, await stackOf(threadId, () => stackOfMain(ANSWER_MS)));
}

/**
 * A thread that the kernel holds (stopped, traced, in a call that cannot be interrupted) is not
 * asked.
 */
async function stackOf(threadId: number, ask: () => Promise<readonly string[]>): Promise<readonly string[]> {
  return /^[RS] /.test(kernelPlace(threadId)) ? ask() : [];
}

function placeOf(threadId: number, frames: readonly string[]): string {
  const script = frames.length === 0 ? 'not in JavaScript' : `in ${frames.join(' < ')}`;
  return `${script}; thread ${threadId} is ${kernelPlace(threadId)}`;
}
