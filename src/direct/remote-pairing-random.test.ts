// Connections between two hosts whose programs, links and control connection come and go in any
// order: no slot is used twice, and whatever happened, two ends that wait are promoted.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import fc from 'fast-check';
import { accepted, connected } from './fixtures/ends.ts';
import { exchange, MeshHost, type PlayedProgram } from './fixtures/mesh-host.ts';
import { messageKinds } from './layout.ts';
import type { Identity } from './pairing.ts';

const CONNECTIONS = 3;
/** How often each happens. `word` brings one word to the other side, `words` all to both. */
const often = { offer: 6, withdraw: 3, word: 6, words: 3, control: 1, links: 1, lanes: 1, restart: 1 } as const;
const kinds = Object.keys(often) as (keyof typeof often)[];

/** One host, with one program that has one end of each connection. */
class Side implements Disposable {
  readonly host: MeshHost;
  readonly peer: string;
  readonly #endOf: (index: number) => Identity;
  readonly #undo = new DisposableStack();
  #program: PlayedProgram;
  /** Number of the offer of each connection. */
  readonly #offers = new Map<number, number>();
  readonly promoted = new Map<number, bigint>();
  #lastOffer = 0;
  #ordersSeen = 0;
  #leftSeen = 0;
  /** Slots that a lane has. */
  readonly #used = new Set<string>();

  constructor(name: string, peer: string, endOf: (index: number) => Identity) {
    this.host = this.#undo.use(new MeshHost(name, { peersFor: () => [peer], places: 8 }));
    this.peer = peer;
    this.#endOf = endOf;
    this.#program = this.host.program();
  }

  isWaiting(index: number): boolean {
    return this.#offers.has(index) && !this.promoted.has(index);
  }

  offer(index: number): void {
    if (this.#offers.has(index)) return;
    this.#offers.set(index, ++this.#lastOffer);
    this.host.offer(this.#program, this.#lastOffer, this.#endOf(index));
  }

  withdraw(index: number): void {
    const offer = this.#offers.get(index);
    if (offer === undefined) return;
    this.host.promotions.withdraw(this.#program.program, offer);
    this.#offers.delete(index);
    this.promoted.delete(index);
  }

  restart(): void {
    this.host.promotions.end(this.#program.program);
    this.#offers.clear();
    this.promoted.clear();
    this.#program = this.host.program();
  }

  links(isUp: boolean): void {
    this.host.links = isUp ? [0, 1] : [];
    if (isUp) this.host.promotions.hear({ kind: 'linkUp', peer: this.peer });
  }

  /** Lanes say all that they owe. */
  lanes(): void {
    const left = this.host.lanes.of('unmirror');
    for (const { arena, slot } of left.slice(this.#leftSeen)) {
      this.#used.delete(`${arena} ${slot}`);
      this.host.promotions.hear({ kind: 'unmirrored', arena, slot });
    }
    this.#leftSeen = left.length;
  }

  check(): void {
    const orders = this.host.lanes.told;
    for (; this.#ordersSeen < orders.length; this.#ordersSeen++) {
      const order = orders[this.#ordersSeen];
      if (order?.kind === 'mirror') {
        const slot = `${order.arena} ${order.slot}`;
        assert.ok(!this.#used.has(slot), `slot ${slot} is used twice`);
        this.#used.add(slot);
      }
      if (order?.kind === 'arenaGone') {
        assert.ok(![...this.#used].some((slot) => slot.startsWith(`${order.arena} `)), 'an arena in use is gone');
      }
    }
    for (const { kind, connection, token } of this.#program.heard()) {
      const [index] = [...this.#offers].find(([, offer]) => offer === connection) ?? [];
      if (index === undefined) continue;
      if (kind === messageKinds.promote) this.promoted.set(index, token);
      else if (kind === messageKinds.decline) this.#offers.delete(index);
    }
  }

  [Symbol.dispose](): void {
    this.#undo.dispose();
  }
}

async function run(steps: readonly (readonly [keyof typeof often, number, number])[]): Promise<void> {
  using a = new Side('a', 'b', (index) => connected(1000 * index, 77));
  using b = new Side('b', 'a', (index) => accepted(1000 * index, 77));
  const sides = [a, b] as const;
  let isUp = false;
  const setUp = (next: boolean): void => {
    if (next === isUp) return;
    isUp = next;
    for (const { host, peer } of sides) {
      host.told.length = 0;
      if (isUp) host.peerUp(peer);
      else host.peerDown(peer);
    }
  };
  setUp(true);
  for (const [kind, which, index] of steps) {
    const [side, other] = which === 0 ? [a, b] : [b, a];
    if (kind === 'offer') side.offer(index);
    else if (kind === 'withdraw') side.withdraw(index);
    else if (kind === 'control') setUp(!isUp);
    else if (kind === 'links') side.links(index > 0);
    else if (kind === 'lanes') side.lanes();
    else if (kind === 'restart') side.restart();
    else if (kind === 'words') {
      if (isUp) await exchange(a.host, b.host);
    } else {
      await setImmediate();
      const told = side.host.told.shift();
      if (told !== undefined && isUp) other.host.hear(side.host.name, told);
    }
    for (const each of sides) each.check();
  }
  setUp(true);
  for (const side of sides) side.links(true);
  await exchange(a.host, b.host);
  for (const side of sides) side.check();
  for (let index = 0; index < CONNECTIONS; index++) {
    assert.ok(!sides.every((side) => side.isWaiting(index)), `both ends of connection ${index} wait`);
    for (const side of sides) side.withdraw(index);
  }
  await exchange(a.host, b.host);
  for (const side of sides) {
    side.check();
    side.lanes();
    for (let index = 0; index < CONNECTIONS; index++) side.offer(index);
  }
  await exchange(a.host, b.host);
  for (const side of sides) side.check();
  assert.equal(a.promoted.size, CONNECTIONS);
  assert.deepEqual(a.promoted, b.promoted);
  for (const { host } of sides) assert.equal(host.promotions.counters.connections, CONNECTIONS);
}

test('whatever comes and goes, ends that both wait are promoted, and no slot is used twice', async () => {
  const step = fc.tuple(
    fc.oneof(...kinds.map((kind) => ({ weight: often[kind], arbitrary: fc.constant(kind) }))),
    fc.integer({ min: 0, max: 1 }),
    fc.integer({ min: 0, max: CONNECTIONS - 1 }),
  );
  await fc.assert(fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 60 }), run), { numRuns: 300 });
});
