// Frees threads that wait in a page fault when somebody terminates them or the process ends: neither could get through.
//
// `worker.terminate()` and `process.exit()` wait for the thread, and the thread waits for a block that will never come. So
// every thread that loads this module makes its own `terminate` fail the worker's windows first, and on exit fails its own
// and those of the threads below it. A worker must know that a thread above it has done so; otherwise it gets no window.

import { getEnvironmentData, isMainThread, setEnvironmentData, threadId, Worker } from 'node:worker_threads';
import { UsageError } from '../../errors.ts';
import { failAllPagers, failPagersOf } from '../../native/index.ts';
import { failureCode } from './failure.ts';

/** Threads that load this module tell the workers they start: numbers from the outermost to the innermost. */
const LINEAGE = 'millrace.vortex.threads';

/** Process-wide, one entry: whether `terminate` of this thread's workers is covered already. */
const covered = Symbol.for('millrace.vortex.covered');

function lineageAbove(): readonly number[] {
  const value = getEnvironmentData(LINEAGE);
  return Array.isArray(value) ? value.filter((entry) => Number.isInteger(entry)) : [];
}

/** Threads above this one that free it, as they were when it started. */
const above = lineageAbove();

/** This thread and those whose end is its end too. */
export const owners: readonly number[] = [...above, threadId];

/** Throws where a window could hang its thread for good. */
export function checkTerminable(): void {
  if (isMainThread || above.length > 0) return;
  throw new UsageError(
    "a stream's window in a worker: the thread that started the worker could not terminate it while it waits for a block; " +
      "import 'millrace/vortex' there too, before it starts the worker",
  );
}

function coverTermination(): void {
  const prototype = Worker.prototype as Worker & { [covered]?: true };
  if (prototype[covered]) return;
  const terminate: (this: Worker) => Promise<number> = Object.getOwnPropertyDescriptor(prototype, 'terminate')?.value;
  prototype.terminate = function terminateWithWindows(this: Worker): Promise<number> {
    // -1 once it has ended.
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
