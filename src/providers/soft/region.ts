// Memory regions of a device and their keys: which access each key gives to which peer.

import { randomInt } from 'node:crypto';
import { UsageError } from '../../errors.ts';
import type { SharedMemory } from '../../native/index.ts';
import { type MrSpec, type ProviderMr, type ProviderQp, read64, sgeRow } from '../../verbs/index.ts';
import type { Pieces } from './pieces.ts';

/** A remote key: which region it opens, and to which QP. */
interface Grant {
  readonly region: Region;
  readonly access: number;
  /** The number of the one QP whose peer may use it; null for all QPs of the protection domain. */
  readonly qpNumber: number | null;
}

export class Region implements ProviderMr {
  readonly lkey: number;
  readonly rkey: number;
  readonly address: number;
  readonly memory: SharedMemory;
  readonly offset: number;
  readonly sizeBytes: number;
  readonly access: number;
  readonly pd: object;
  readonly #table: RegionTable;

  constructor(table: RegionTable, pd: object, spec: MrSpec, keys: { lkey: number; rkey: number; address: number }) {
    this.#table = table;
    this.pd = pd;
    this.memory = spec.memory;
    this.offset = spec.offset;
    this.sizeBytes = spec.sizeBytes;
    this.access = spec.access;
    this.lkey = keys.lkey;
    this.rkey = keys.rkey;
    this.address = keys.address;
  }

  /** Where `address` is in `memory`, or -1 when the range is not inside the region. */
  locate(address: number, length: number): number {
    const at = address - this.address;
    return at >= 0 && at + length <= this.sizeBytes ? this.offset + at : -1;
  }

  /**
   * Whether the region is all of its memory, so that handing out the descriptor hands out nothing
   * else.
   */
  get isWholeMemory(): boolean {
    return this.offset === 0 && this.sizeBytes === this.memory.sizeBytes;
  }

  grant(qp: ProviderQp, access: number): number {
    return this.#table.grant(this, access, qp.number);
  }

  revoke(rkey: number): void {
    this.#table.revoke(this, rkey);
  }

  close(): void {
    this.#table.remove(this);
  }
}

/** Addresses start here and never overlap, so that an address names at most one region, ever. */
const FIRST_ADDRESS = 0x1000_0000_0000;
const ALIGNMENT = 4096;

export class RegionTable {
  readonly #byLkey = new Map<number, Region>();
  readonly #byRkey = new Map<number, Grant>();
  readonly #onRevoked: () => void;
  /** Changes whenever a key opens less than before, or memory behind one goes. */
  generation = 0;
  /** The last one found: requests tend to name the same region again. */
  #lastLocal: Region | undefined;
  #nextAddress = FIRST_ADDRESS;

  /** `onRevoked`: some key opens less than before. */
  constructor(onRevoked: () => void) {
    this.#onRevoked = () => {
      this.generation++;
      onRevoked();
    };
  }

  add(pd: object, spec: MrSpec): Region {
    const address = this.#nextAddress;
    this.#nextAddress += (Math.ceil(spec.sizeBytes / ALIGNMENT) + 1) * ALIGNMENT;
    const lkey = unusedKey(this.#byLkey);
    const rkey = unusedKey(this.#byRkey);
    const region = new Region(this, pd, spec, { lkey, rkey, address });
    this.#byLkey.set(lkey, region);
    this.#byRkey.set(rkey, { region, access: spec.access, qpNumber: null });
    return region;
  }

  /** A local region, if the key is one of this protection domain and its memory is still there. */
  local(lkey: number, pd: object): Region | undefined {
    const last = this.#lastLocal;
    const region = last !== undefined && last.lkey === lkey ? last : this.#byLkey.get(lkey);
    this.#lastLocal = region;
    return region !== undefined && region.pd === pd && !region.memory.isClosed ? region : undefined;
  }

  /**
   * The region that an address is in, whatever its key: for inline data, which needs no key. Checks
   * all regions.
   */
  containing(address: number, pd: object): Region | undefined {
    for (const region of this.#byLkey.values()) {
      if (region.locate(address, 1) >= 0) return this.local(region.lkey, pd);
    }
    return undefined;
  }

  /** What the peer of a QP may reach by a key, for one kind of access. */
  remote(rkey: number, pd: object, qpNumber: number, needed: number): Region | undefined {
    const grant = this.#byRkey.get(rkey);
    if (grant === undefined || grant.region.pd !== pd || grant.region.memory.isClosed) return undefined;
    if (grant.qpNumber !== null && grant.qpNumber !== qpNumber) return undefined;
    return (grant.access & needed) === needed ? grant.region : undefined;
  }

  /** The access a key gives to the peer of a QP; 0 when none. */
  remoteAccess(rkey: number, pd: object, qpNumber: number): number {
    return this.remote(rkey, pd, qpNumber, 0) === undefined ? 0 : (this.#byRkey.get(rkey)?.access ?? 0);
  }

  grant(region: Region, access: number, qpNumber: number): number {
    const rkey = unusedKey(this.#byRkey);
    this.#byRkey.set(rkey, { region, access, qpNumber });
    return rkey;
  }

  revoke(region: Region, rkey: number): void {
    if (this.#byRkey.get(rkey)?.region !== region) throw new UsageError('revoke an rkey: it is not of this region');
    this.#byRkey.delete(rkey);
    this.#onRevoked();
  }

  remove(region: Region): void {
    this.#byLkey.delete(region.lkey);
    this.#lastLocal = undefined;
    for (const [rkey, grant] of this.#byRkey) if (grant.region === region) this.#byRkey.delete(rkey);
    this.#onRevoked();
  }
}

/** From a generator that cannot be predicted: a key is a secret between two peers. */
function unusedKey(used: ReadonlyMap<number, unknown>): number {
  for (;;) {
    const key = randomInt(1, 0xffff_ffff);
    if (!used.has(key)) return key;
  }
}

/**
 * Turns scatter-gather entries into pieces of memory. False when one of them is not what its key
 * allows; then the pieces are of no use.
 */
export function resolveSges(
  table: RegionTable,
  pd: object,
  words: Uint32Array,
  first: number,
  count: number,
  needed: number,
  into: Pieces,
): boolean {
  for (let index = 0; index < count; index++) {
    const at = first + index * sgeRow.words;
    const length = words[at + sgeRow.length];
    if (length === 0) continue;
    const region = table.local(words[at + sgeRow.lkey], pd);
    if (region === undefined || (region.access & needed) !== needed) return false;
    const offset = region.locate(read64(words, at + sgeRow.address), length);
    if (offset < 0) return false;
    into.add(region.memory, offset, length);
  }
  return true;
}
