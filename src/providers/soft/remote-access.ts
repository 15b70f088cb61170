// Checks a peer's access to local memory, and carries out its atomics, each once.

import { compareSwap64, fetchAdd64, high64, low64, type SharedMemory } from '../../native/index.ts';
import type { Region, RegionTable } from './region.ts';

/** The regions that a peer may reach, and what its QP allows. */
export interface Reached {
  readonly number: number;
  readonly pd: object;
  readonly regions: RegionTable;
  readonly access: number;
}

/** Whether a peer may reach a range. A range of zero bytes may be anywhere, as on other devices. */
export function mayReach(qp: Reached, rkey: number, address: number, bytes: number, needed: number): boolean {
  if ((qp.access & needed) !== needed) return false;
  if (bytes === 0) return true;
  return (regionOf(qp, rkey, needed)?.locate(address, bytes) ?? -1) >= 0;
}

export function regionOf(qp: Reached, rkey: number, needed: number): Region | undefined {
  return qp.regions.remote(rkey, qp.pd, qp.number, needed);
}

export interface AtomicResult {
  readonly low: number;
  readonly high: number;
}

/**
 * Carries atomics out, and keeps their results: an atomic that is retransmitted must not be carried
 * out again.
 */
export class AtomicUnit {
  readonly #results = new Map<number, AtomicResult>();
  #capacity = 2;

  /** A peer retransmits at most as many as it may have under way; older results are dropped. */
  start(maxUnderWay: number): void {
    this.#capacity = 2 * Math.max(1, maxUnderWay);
    this.#results.clear();
  }

  fetchAdd(sequence: number, memory: SharedMemory, offset: number, low: number, high: number): AtomicResult {
    fetchAdd64(memory, offset, low, high);
    return this.#keep(sequence);
  }

  compareSwap(
    sequence: number,
    memory: SharedMemory,
    offset: number,
    compareLow: number,
    compareHigh: number,
    swapLow: number,
    swapHigh: number,
  ): AtomicResult {
    compareSwap64(memory, offset, compareLow, compareHigh, swapLow, swapHigh);
    return this.#keep(sequence);
  }

  result(sequence: number): AtomicResult | undefined {
    return this.#results.get(sequence);
  }

  clear(): void {
    this.#results.clear();
  }

  #keep(sequence: number): AtomicResult {
    const result = { low: low64(), high: high64() };
    // A number that has wrapped is inserted as the newest, not in its old place.
    this.#results.delete(sequence);
    this.#results.set(sequence, result);
    if (this.#results.size > this.#capacity) {
      for (const oldest of this.#results.keys()) {
        this.#results.delete(oldest);
        break;
      }
    }
    return result;
  }
}
