// What a daemon pins in the BPF file system, looked at from outside: its verdicts, and what was
// announced to it.

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Host } from '../../src/lab/index.ts';
import { BpfMap } from '../../src/native/index.ts';
import { folderOf, formatIpEndpoint, parseIpEndpoint, SteeringView, type Verdict } from '../../src/steering/index.ts';

/** SHORTCUT_REDIRECTED in bpf/shortcut.bpf.c. */
const redirectedKey = new Uint8Array(4);

export class PinnedInstance {
  readonly instance: string;

  constructor(instance: string) {
    this.instance = instance;
  }

  get isPinned(): boolean {
    return existsSync(folderOf(this.instance));
  }

  /** How often the hooks gave that verdict. */
  verdict(name: Verdict): number {
    using view = new SteeringView(this.instance);
    return view.counters[name];
  }

  /** Messages that went past TCP. */
  redirected(): number {
    using map = BpfMap.openPinned(join(folderOf(this.instance), 'shortcut_counts'));
    const value = new Uint8Array(8);
    map.lookup(redirectedKey, value);
    return Number(new DataView(value.buffer).getBigUint64(0, true));
  }

  /** As `10.0.0.1:80` or `[fd00::1]:80`; `withLibrary`: as one of a program that has it. */
  isAnnounced(endpoint: string, withLibrary = false): boolean {
    using view = new SteeringView(this.instance);
    if (!withLibrary) return view.isAnnounced(parseIpEndpoint(endpoint));
    return view.announcedWithLibrary.some((one) => formatIpEndpoint(one) === endpoint);
  }
}

/** The name of the instance that the daemon of that host pins. */
export function instanceOf(host: Host): string {
  return `${host.labId}-${host.name}`;
}
