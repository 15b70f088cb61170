// The regions of a remote device by key and by address, for inline data, which is copied here; and
// the memory behind them.

import type { SharedMemory } from '../../native/index.ts';
import type { RemoteMr } from './mr.ts';
import type { RemotePd } from './pd.ts';

/** Memory that the backend knows, by its handle there. */
interface KnownMemory {
  readonly handle: number;
  regions: number;
}

export class Regions {
  readonly #byLkey = new Map<number, RemoteMr>();
  readonly #memories = new Map<SharedMemory, KnownMemory>();

  add(mr: RemoteMr): void {
    this.#byLkey.set(mr.lkey, mr);
    const known = this.#memories.get(mr.memory);
    if (known !== undefined) known.regions++;
  }

  /** The backend frees memory with the last region on it. */
  remove(mr: RemoteMr): void {
    this.#byLkey.delete(mr.lkey);
    const known = this.#memories.get(mr.memory);
    if (known !== undefined && --known.regions === 0) this.#memories.delete(mr.memory);
  }

  /**
   * The region of a scatter-gather entry. Inline data needs no key: where no key fits, the region
   * is found by its address.
   */
  find(lkey: number, address: number, pd: RemotePd): RemoteMr | undefined {
    const byKey = this.#byLkey.get(lkey);
    if (byKey?.pd === pd) return byKey;
    for (const mr of this.#byLkey.values()) if (mr.pd === pd && mr.locate(address, 1) >= 0) return mr;
    return undefined;
  }

  know(memory: SharedMemory, handle: number): void {
    this.#memories.set(memory, { handle, regions: 0 });
  }

  handleOf(memory: SharedMemory): number | undefined {
    return this.#memories.get(memory)?.handle;
  }

  /** Takes the handles of memory that was allocated and closed without being registered. */
  takeUnused(): readonly number[] {
    const unused = [...this.#memories].filter(([memory, { regions }]) => regions === 0 && memory.isClosed);
    for (const [memory] of unused) this.#memories.delete(memory);
    return unused.map(([, { handle }]) => handle);
  }
}
