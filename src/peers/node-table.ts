// The nodes in etcd. Invalid entries are reported once; nodes that vanish together with etcd's data
// stay for a grace time.

import { printable } from '../text/index.ts';
import type { DirectoryPeer } from './directory.ts';
import { decodeNodeEntry } from './node-entry.ts';

/** More entries than any mesh has: with more, something is filling etcd. */
export const MAX_NODES = 4096;

interface RawEntry {
  readonly name: string;
  readonly value: Uint8Array;
}

export class NodeTable {
  readonly #self: string;
  readonly #graceMs: number;
  readonly #onError: (message: string) => void;
  readonly #peers = new Map<string, DirectoryPeer>();
  /** Invalid entries that were reported, by name, with the reason. */
  readonly #bad = new Map<string, string>();
  /** Nodes that are missing since etcd came back, with the time when they are removed. */
  readonly #fading = new Map<string, number>();
  #isFull = false;

  /** `graceMs`: how long a node may take to register again after etcd lost its data. */
  constructor(self: string, graceMs: number, onError: (message: string) => void) {
    this.#self = self;
    this.#graceMs = graceMs;
    this.#onError = onError;
  }

  /**
   * Adds peers of an earlier directory: one that is missing in the first list stays for the grace
   * time.
   */
  remember(peers: Iterable<DirectoryPeer>): void {
    for (const peer of peers) if (peer.name !== this.#self) this.#peers.set(peer.name, peer);
  }

  get peers(): Iterable<DirectoryPeer> {
    return this.#peers.values();
  }

  /** When the next missing node is removed; Infinity when none is missing. */
  get nextSweepMs(): number {
    return Math.min(...this.#fading.values());
  }

  /**
   * Takes a whole list. A node that is missing has not left in order, so it stays for the grace
   * time.
   */
  replace(entries: readonly RawEntry[], nowMs: number): void {
    const there = new Set(entries.map(({ name }) => name));
    for (const name of this.#bad.keys()) if (!there.has(name)) this.#bad.delete(name);
    for (const name of this.#peers.keys()) {
      if (!there.has(name) && !this.#fading.has(name)) this.#fading.set(name, nowMs + this.#graceMs);
    }
    for (const entry of entries) this.put(entry);
  }

  put({ name, value }: RawEntry): void {
    if (name === this.#self) return;
    let peer: DirectoryPeer;
    try {
      peer = decodeNodeEntry(name, value);
    } catch (error) {
      this.#refuse(name, (error as Error).message);
      return;
    }
    if (!this.#peers.has(name) && this.#peers.size >= MAX_NODES) {
      if (!this.#isFull) this.#onError(`etcd has more than ${MAX_NODES} nodes; the others are ignored`);
      this.#isFull = true;
      return;
    }
    this.#fading.delete(name);
    this.#bad.delete(name);
    this.#peers.set(name, peer);
  }

  remove(name: string): void {
    this.#peers.delete(name);
    this.#fading.delete(name);
    this.#bad.delete(name);
    this.#isFull = false;
  }

  sweep(nowMs: number): void {
    for (const [name, untilMs] of this.#fading) if (untilMs <= nowMs) this.remove(name);
  }

  /** A node whose entry became invalid is no peer any more. */
  #refuse(name: string, reason: string): void {
    this.#peers.delete(name);
    this.#fading.delete(name);
    if (this.#bad.get(name) === reason || this.#bad.size >= MAX_NODES) return;
    this.#bad.set(name, reason);
    this.#onError(`ignored the etcd entry of node '${printable(name, 80)}': ${reason}`);
  }
}
