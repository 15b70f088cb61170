// What the daemons of a soak said, and what of it must not be: faults explain errors with peers and etcd, nothing else.

import { createInterface } from 'node:readline';
import type { LabDaemon } from '../worlds/index.ts';

interface Line {
  readonly level?: unknown;
  readonly where?: unknown;
  readonly msg?: unknown;
}

/** Where errors come from when a wire is cut, and a peer or etcd is gone. */
const expected = new Set<unknown>(['control', 'etcd']);
const KEPT_LINES = 50;

export class DaemonLog {
  readonly unexpected: string[] = [];

  follow(daemon: LabDaemon): void {
    const { host, child, log } = daemon;
    for (const line of log) this.#note(host.name, line);
    if (child.stderr !== null) createInterface(child.stderr).on('line', (line) => this.#note(host.name, line));
  }

  #note(host: string, text: string): void {
    if (isExpected(text) || this.unexpected.length >= KEPT_LINES) return;
    this.unexpected.push(`daemon ${host} said: ${text}`);
  }
}

export function isExpected(text: string): boolean {
  let line: Line | null;
  try {
    line = JSON.parse(text) as Line | null;
  } catch {
    // A stack, or a warning of Node's.
    return false;
  }
  if (line?.level !== 'error') return true;
  return expected.has(line.where);
}
