// What a command sees of the process. It is an argument, so that tests can run commands in-process.

import type { Readable, Writable } from 'node:stream';

export interface OutputStream extends Writable {
  readonly isTTY?: boolean;
  readonly columns?: number;
}

export interface World {
  readonly stdin: Readable;
  /** For data that another program may read. */
  readonly stdout: OutputStream;
  /** For progress, hints and errors. */
  readonly stderr: OutputStream;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Aborted by Ctrl-C or SIGTERM: the command cleans up and returns. */
  readonly signal: AbortSignal;
  /** Monotonic, in ms. */
  readonly nowMs: () => number;
}
