// BPF maps in user space: entries are looked up, updated and deleted by key.

import { constants } from 'node:os';
import { UnsupportedError, UsageError } from '../errors.ts';
import { addon } from './addon.ts';
import { nameableErrno, requireLibbpf } from './bpf-error.ts';
import { Fd } from './fd.ts';
import { check, checkValue } from './result.ts';

/** enum bpf_map_type, what of it is used here. */
const bpfMapTypes = {
  hash: 1,
  array: 2,
  lruHash: 9,
  arrayOfMaps: 12,
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

/** When an update may happen. */
const updateModes = { any: 0, onlyNew: 1, onlyOld: 2 } as const;

/** PERCPU_HASH, PERCPU_ARRAY, LRU_PERCPU_HASH, PERCPU_CGROUP_STORAGE. */
const perCpuTypes: ReadonlySet<number> = new Set([5, 6, 10, 21]);

const { ENOENT } = constants.errno;

/**
 * A map that lives until its last descriptor is closed, and the last program that uses it is gone.
 */
export class BpfMap extends Fd {
  readonly keyBytes: number;
  readonly valueBytes: number;
  readonly maxEntries: number;

  static create(spec: BpfMapSpec): BpfMap {
    requireLibbpf(`create BPF map ${spec.name}`);
    const type = bpfMapTypes[spec.type];
    const fd = addon.bpfMapCreate(spec.name, type, spec.keyBytes, spec.valueBytes, spec.maxEntries, spec.flags ?? 0);
    return new BpfMap(check(nameableErrno(fd), 'bpf_map_create', `${spec.type} ${spec.name}`));
  }

  /** Opens a pinned map. */
  static openPinned(path: string): BpfMap {
    requireLibbpf(`open ${path}`);
    return new BpfMap(check(nameableErrno(addon.bpfGetPinned(path)), 'bpf_obj_get', path));
  }

  /** By the number that maps of maps give for what is in them. */
  static openById(id: number): BpfMap {
    requireLibbpf(`open BPF map ${id}`);
    return new BpfMap(check(nameableErrno(addon.bpfMapById(id)), 'bpf_map_get_fd_by_id', `map ${id}`));
  }

  /** Takes the descriptor over. */
  constructor(fd: number) {
    super(fd);
    const [type, keyBytes, valueBytes, entries] = checkValue(addon.bpfMapInfo(fd), 'bpf_obj_get_info_by_fd');
    if (perCpuTypes.has(type)) {
      super.close();
      throw new UnsupportedError('use a BPF map per processor: its values are longer than it says');
    }
    this.keyBytes = keyBytes;
    this.valueBytes = valueBytes;
    this.maxEntries = entries;
  }

  /** Fills `value`; false when there is no such key. */
  lookup(key: Uint8Array, value: Uint8Array): boolean {
    this.#checkSizes(key, value);
    return this.#isThere(addon.bpfMapLookup(this.fd, key, value), 'bpf_map_lookup_elem');
  }

  update(key: Uint8Array, value: Uint8Array, mode: keyof typeof updateModes = 'any'): void {
    this.#checkSizes(key, value);
    check(nameableErrno(addon.bpfMapUpdate(this.fd, key, value, updateModes[mode])), 'bpf_map_update_elem');
  }

  /** False when there was no such key. */
  delete(key: Uint8Array): boolean {
    this.#checkSizes(key);
    return this.#isThere(addon.bpfMapDelete(this.fd, key), 'bpf_map_delete_elem');
  }

  /** Of a map that changes meanwhile, keys may be missed or come twice. */
  *keys(): Generator<Uint8Array> {
    let key: Uint8Array = new Uint8Array(this.keyBytes);
    for (let isFirst = 1; ; isFirst = 0) {
      const next = new Uint8Array(this.keyBytes);
      if (!this.#isThere(addon.bpfMapNextKey(this.fd, key, next, isFirst), 'bpf_map_get_next_key')) return;
      yield next;
      key = next;
    }
  }

  // The kernel takes addresses and trusts the map's own sizes, and so does the addon: only this
  // file calls it.
  #checkSizes(key: Uint8Array, value?: Uint8Array): void {
    if (key.byteLength === this.keyBytes && (value === undefined || value.byteLength === this.valueBytes)) return;
    throw new UsageError(
      `a BPF map has keys of ${this.keyBytes} and values of ${this.valueBytes} bytes, not ${key.byteLength} and ${value?.byteLength ?? 'none'}`,
    );
  }

  #isThere(result: number, call: string): boolean {
    if (result === -ENOENT) return false;
    check(nameableErrno(result), call);
    return true;
  }
}

/** Gives a map, program or link a name in the BPF file system, where it outlives this process. */
export function pinBpf(fd: number, path: string): void {
  check(nameableErrno(addon.bpfPin(fd, path)), 'bpf_obj_pin', path);
}
