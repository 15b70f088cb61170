// Two hosts whose connections are steered to relays: one in each host, and each knows what listens in the other.

import assert from 'node:assert/strict';
import { type Host, Lab } from '../../../src/lab/index.ts';
import { removeInstance } from '../../../src/steering/index.ts';
import { temporaryRunDir } from '../fixtures/lab-world.ts';
import type { CarryingWorld } from './carrying-world.ts';
import { instanceOf } from './pinned-instance.ts';
import { RelayProcess } from './relay-process.ts';
import { World } from './world.ts';

export class SteeredWorld extends World implements CarryingWorld {
  #relays: { a: RelayProcess; b: RelayProcess } | null = null;

  static override async create(rules = carryEverything): Promise<SteeredWorld> {
    const runDir = temporaryRunDir();
    const lab = await Lab.create({ runDir: runDir.path });
    const world = new SteeredWorld(lab, runDir);
    try {
      await world.startRelays(rules);
      return world;
    } catch (error) {
      await world.close();
      throw error;
    }
  }

  get relays(): { readonly a: RelayProcess; readonly b: RelayProcess } {
    assert.ok(this.#relays, 'the relays do not run');
    return this.#relays;
  }

  /** Also after they were ended or killed. */
  async startRelays(rules = carryEverything): Promise<void> {
    const [a, b] = await Promise.all([
      RelayProcess.start(this.a, { peer: this.b, rules: rules(this.b) }),
      RelayProcess.start(this.b, { peer: this.a, rules: rules(this.a) }),
    ]);
    this.#relays = { a, b };
    await Promise.all([a.peerUp(), b.peerUp()]);
  }

  /** Only one of them, in place of the one that is gone. */
  async restart(name: 'a' | 'b', rules = carryEverything): Promise<RelayProcess> {
    const [host, peer] = name === 'a' ? [this.a, this.b] : [this.b, this.a];
    const relay = await RelayProcess.start(host, { peer, rules: rules(peer) });
    this.#relays = { ...this.relays, [name]: relay };
    return relay;
  }

  /** Connects of host a's programs that went to its relay. */
  carried(): number {
    return this.relays.a.verdict('carried');
  }

  protected override isAnnounced(endpoint: string): boolean {
    return this.relays.a.isAnnounced(endpoint);
  }

  /** Ends the relays; what host a's relay carried is told by itself. */
  async stop(): Promise<void> {
    const { a, b } = this.relays;
    const [totals] = await Promise.all([a.stop(), b.stop()]);
    assert.equal(totals.strangers, 0, 'connections came to the relay that nobody steered');
    assert.equal(a.isPinned || b.isPinned, false, 'something stayed pinned');
  }

  override async close(): Promise<void> {
    const relays = this.#relays;
    await relays?.a[Symbol.asyncDispose]();
    await relays?.b[Symbol.asyncDispose]();
    await super.close();
    // Of relays that were killed, or that the lab's end took along.
    for (const host of [this.a, this.b]) removeInstance(instanceOf(host));
  }
}

/** The same, past the kernel's TCP between a program and its relay. */
export function redirectEverything(to: Host): readonly string[] {
  return carryEverything(to).map((rule) => `${rule} redirect`);
}

export function carryEverything(to: Host): readonly string[] {
  return [`connect to ${to.ipv4}`, `connect to ${to.ipv6}`];
}
