// Frees threads that wait in a page fault of a window when they are terminated or the process ends.
//
// `worker.terminate()` and `process.exit()` wait for the thread, and the thread waits for a block
// that will never come. So a thread that loads this module makes its `Worker.prototype.terminate`
// fail the worker's windows first, and on exit fails its own windows and those of the threads below
// it. A worker gets a window only if a thread above it has done so.

import { getEnvironmentData, isMainThread, setEnvironmentData, threadId, Worker } from 'node:worker_threads';
import { UsageError } from '../../errors.ts';
import { failAllPagers, failPagersOf } from '../../native/index.ts';
import { failureCode } from './failure.ts';

/**
 * Environment data for workers: the ids of the threads above that have loaded this module, the
 * outermost first.
 */
const LINEAGE = 'millrace.vortex.threads';

/** Marks the `Worker.prototype` of a thread whose `terminate` is covered already. */
const covered = Symbol.for('millrace.vortex.covered');

function lineageAbove(): readonly number[] {
  const value = getEnvironmentData(LINEAGE);
  return Array.isArray(value) ? value.filter((entry) => Number.isInteger(entry)) : [];
}

/** The threads above this one that can free it, as of its start. */
const above = lineageAbove();

/** This thread, and the threads whose end ends it too. */
export const owners: readonly number[] = [...above, threadId];

/** Throws where a window could hang its thread for good. */
export function checkTerminable(): void {
  if (isMainThread || above.length > 0) return;
  throw new UsageError(
    'open the window of a stream in a worker: the thread that started the worker could not terminate it while it waits ' +
      "for a block; import 'millrace/vortex' in that thread before it starts the worker",
  );
}

function coverTermination(): void {
  const prototype = Worker.prototype as Worker & { [covered]?: true };
  if (prototype[covered]) return;
  const terminate: (this: Worker) => Promise<number> = Object.getOwnPropertyDescriptor(prototype, 'terminate')?.value;
  prototype.terminate = function terminateWithWindows(this: Worker): Promise<number> {
    // It is -1 once the worker has ended.
    if (this.threadId > 0) failPagersOf(this.threadId, failureCode.terminated);
    return terminate.call(this);
  };
  prototype[covered] = true;
  setEnvironmentData(LINEAGE, [...owners]);
  // Before Node waits for the workers below this thread.
  process.on('exit', () => {
    if (isMainThread) failAllPagers(failureCode.terminated);
    else failPagersOf(threadId, failureCode.terminated);
  });
}

coverTermination();
