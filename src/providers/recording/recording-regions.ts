// Which bytes the requests of a recording are about: the regions that are registered, by their
// keys.

import type { MrSpec, ProviderMr } from '../../verbs/index.ts';

interface Region {
  readonly spec: MrSpec;
  readonly address: number;
}

export class RecordedRegions {
  readonly #byLkey = new Map<number, Region>();
  readonly #byRkey = new Map<number, Region>();

  add(mr: ProviderMr, spec: MrSpec): void {
    const region = { spec, address: mr.address };
    this.#byLkey.set(mr.lkey, region);
    this.#byRkey.set(mr.rkey, region);
  }

  addKey(rkey: number, mr: ProviderMr): void {
    const region = this.#byLkey.get(mr.lkey);
    if (region !== undefined) this.#byRkey.set(rkey, region);
  }

  removeKey(rkey: number): void {
    this.#byRkey.delete(rkey);
  }

  remove(mr: ProviderMr): void {
    const region = this.#byLkey.get(mr.lkey);
    this.#byLkey.delete(mr.lkey);
    for (const [rkey, each] of this.#byRkey) if (each === region) this.#byRkey.delete(rkey);
  }

  /** Inline data needs no key: then any region that has the address will do. */
  local(lkey: number, address: number, length: number, isInline: boolean): Uint8Array | undefined {
    const range = bytesOf(this.#byLkey.get(lkey), address, length);
    if (range !== undefined || !isInline) return range;
    for (const region of this.#byLkey.values()) {
      const found = bytesOf(region, address, length);
      if (found !== undefined) return found;
    }
    return undefined;
  }

  remote(rkey: number, address: number, length: number): Uint8Array | undefined {
    return bytesOf(this.#byRkey.get(rkey), address, length);
  }
}

function bytesOf(region: Region | undefined, address: number, length: number): Uint8Array | undefined {
  if (region === undefined) return undefined;
  const { memory, offset, sizeBytes } = region.spec;
  const at = address - region.address;
  const isInside = at >= 0 && at + length <= sizeBytes && !memory.isClosed;
  return isInside ? new Uint8Array(memory.buffer, offset + at, length) : undefined;
}
