// What a daemon pins in the BPF file system, looked at from outside: its verdicts, and what was announced to it.

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Host } from '../../../src/lab/index.ts';
import { BpfMap } from '../../../src/native/index.ts';
import { parseIpEndpoint, verdicts } from '../../../src/steering/index.ts';
import { endpointBytes } from '../../../src/steering/ip-endpoint.ts';

const pins = '/sys/fs/bpf/millrace';
/** SHORTCUT_REDIRECTED in bpf/shortcut.bpf.c. */
const redirectedIndex = 0;

export class PinnedInstance {
  readonly instance: string;

  constructor(instance: string) {
    this.instance = instance;
  }

  /** Of the programs in the kernel and their maps. */
  get pinFolder(): string {
    return join(pins, this.instance);
  }

  get isPinned(): boolean {
    return existsSync(this.pinFolder);
  }

  /** How often the hooks gave that verdict. */
  verdict(name: keyof typeof verdicts): number {
    return this.#count('verdicts', verdicts[name]);
  }

  /** Messages that went past TCP. */
  redirected(): number {
    return this.#count('shortcut_counts', redirectedIndex);
  }

  /** As `10.0.0.1:80` or `[fd00::1]:80`. */
  isAnnounced(endpoint: string): boolean {
    using map = BpfMap.openPinned(join(this.pinFolder, 'announced'));
    return map.lookup(endpointBytes(parseIpEndpoint(endpoint)), new Uint8Array(map.valueBytes));
  }

  #count(name: string, index: number): number {
    using map = BpfMap.openPinned(join(this.pinFolder, name));
    const value = new Uint8Array(8);
    map.lookup(new Uint8Array(new Uint32Array([index]).buffer), value);
    return Number(new DataView(value.buffer).getBigUint64(0, true));
  }
}

/** Its name in the BPF file system. */
export function instanceOf(host: Host): string {
  return `test-${host.labId}-${host.name}`;
}
