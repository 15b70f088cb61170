// The nodes that etcd knows, with bad entries left out and told once. Those that vanish with etcd's data stay for a while.

import { printable } from '../text/index.ts';
import type { DirectoryPeer } from './directory.ts';
import { decodeNodeEntry } from './node-entry.ts';

/** More entries than any mesh has: somebody is filling the table. */
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
  /** Told already: name to reason. */
  readonly #bad = new Map<string, string>();
  /** Not seen since etcd came back: name to when they are given up. */
  readonly #fading = new Map<string, number>();
  #isFull = false;

  /** `graceMs`: so long a node may take to register anew after etcd lost its data. */
  constructor(self: string, graceMs: number, onError: (message: string) => void) {
    this.#self = self;
    this.#graceMs = graceMs;
    this.#onError = onError;
  }

  /** Who was known elsewhere: missing in the first list, it stays for the grace like others. */
  remember(peers: Iterable<DirectoryPeer>): void {
    for (const peer of peers) if (peer.name !== this.#self) this.#peers.set(peer.name, peer);
  }

  get peers(): Iterable<DirectoryPeer> {
    return this.#peers.values();
  }

  /** When the next of those that were not seen again is given up; Infinity when there is none. */
  get nextSweepMs(): number {
    return Math.min(...this.#fading.values());
  }

  /** What there is now. Who is missing is not told to have left, so it stays for the grace. */
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
      if (!this.#isFull) this.#onError(`etcd has more than ${MAX_NODES} nodes; the rest is ignored`);
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

  /** A node whose entry became nonsense is none. */
  #refuse(name: string, reason: string): void {
    this.#peers.delete(name);
    this.#fading.delete(name);
    if (this.#bad.get(name) === reason || this.#bad.size >= MAX_NODES) return;
    this.#bad.set(name, reason);
    this.#onError(`ignored an entry '${printable(name, 80)}' of etcd: ${reason}`);
  }
}
