// The logs of the daemons of a soak: faults explain errors with peers and etcd, and all other
// errors are failures.

import type { DaemonProcess } from '../worlds/index.ts';

interface Line {
  readonly level?: unknown;
  readonly where?: unknown;
  readonly msg?: unknown;
}

/** Sources of errors that a cut wire, or a peer or etcd that is gone, explain. */
const expected = new Set<unknown>(['control', 'etcd']);
const KEPT_LINES = 50;

export class DaemonLog {
  readonly unexpected: string[] = [];

  follow(daemon: DaemonProcess): void {
    daemon.program.onErrorLine((line) => this.#note(daemon.host.name, line));
  }

  #note(host: string, text: string): void {
    if (isExpected(text) || this.unexpected.length >= KEPT_LINES) return;
    this.unexpected.push(`daemon ${host} logged: ${text}`);
  }
}

export function isExpected(text: string): boolean {
  let line: Line | null;
  try {
    line = JSON.parse(text) as Line | null;
  } catch {
    // A stack trace, or a warning of Node.
    return false;
  }
  if (line?.level !== 'error') return true;
  return expected.has(line.where);
}
