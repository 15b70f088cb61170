// Maps made without an object file.

import { addon } from './addon.ts';
import { nameableErrno, requireLibbpf } from './bpf-error.ts';
import { Fd } from './fd.ts';
import { check } from './result.ts';

/** enum bpf_map_type, what of it is used here. */
export const bpfMapTypes = {
  hash: 1,
  array: 2,
  lruHash: 9,
  sockmap: 15,
  sockhash: 18,
  queue: 22,
  ringbuf: 27,
} as const;

export interface BpfMapSpec {
  readonly type: keyof typeof bpfMapTypes;
  /** Seen in `bpftool map`; at most 15 bytes of letters, digits, `_` and `.`. */
  readonly name: string;
  readonly keyBytes: number;
  readonly valueBytes: number;
  readonly maxEntries: number;
  readonly flags?: number;
}

/** A map that lives until its last descriptor is closed. */
export class BpfMap extends Fd {
  static create(spec: BpfMapSpec): BpfMap {
    requireLibbpf(`create BPF map ${spec.name}`);
    const type = bpfMapTypes[spec.type];
    const fd = addon.bpfMapCreate(spec.name, type, spec.keyBytes, spec.valueBytes, spec.maxEntries, spec.flags ?? 0);
    return new BpfMap(check(nameableErrno(fd), 'bpf_map_create', `${spec.type} ${spec.name}`));
  }
}
