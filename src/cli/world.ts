// The world a command sees. Commands take it as an argument, so that tests run them in-process.

import type { Readable, Writable } from 'node:stream';

export interface OutputStream extends Writable {
  readonly isTTY?: boolean;
  readonly columns?: number;
}

export interface World {
  readonly stdin: Readable;
  /** Data only: what another program may read. */
  readonly stdout: OutputStream;
  /** Talk: progress, hints, errors. */
  readonly stderr: OutputStream;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Aborted by Ctrl-C or SIGTERM: unwind, clean up, return. */
  readonly signal: AbortSignal;
  /** Monotonic, in ms. */
  readonly nowMs: () => number;
}
