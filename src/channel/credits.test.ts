// Credits: no side sends more than was granted, memory has a limit, and a stream that is read can
// always go on.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { LEAST_WINDOW_BYTES, MemoryBudget, ReceiveWindow, SendWindow } from './credits.ts';

const TWO_32 = 2 ** 32;

/** Both ends of one direction of a stream, with credits on their way. */
class Direction {
  readonly sending = new SendWindow();
  readonly receiving: ReceiveWindow;
  readonly #credits: number[] = [];
  #returned = 0;
  #sent = 0;
  #consumed = 0;

  constructor(budget: MemoryBudget, firstBytes: number, maxBytes: number) {
    this.receiving = new ReceiveWindow(budget, firstBytes, maxBytes);
    this.sending.extend(this.receiving.tell());
  }

  get waitingBytes(): number {
    return this.#sent - this.#consumed;
  }

  /** The receiver counts everything that comes: it must never be more than it granted. */
  send(wanted: number): number {
    const bytes = Math.min(wanted, this.sending.availableBytes);
    this.sending.send(bytes);
    this.#sent += bytes;
    assert.ok(this.receiving.receive(bytes), 'more than was granted');
    return bytes;
  }

  consume(wanted: number): void {
    const bytes = Math.min(wanted, this.waitingBytes);
    this.#consumed += bytes;
    this.receiving.consume(bytes);
    assert.equal(this.receiving.waitingBytes, this.waitingBytes);
    if (this.receiving.isDue) this.#credits.push(this.receiving.tell());
  }

  /** The sender is idle: it gives credit back, which the receiver hears later. */
  giveBack(): void {
    this.#returned += this.sending.giveBack();
    assert.ok(this.sending.availableBytes <= LEAST_WINDOW_BYTES);
  }

  hearReturned(): void {
    assert.ok(this.receiving.giveBack(this.#returned), 'it gives back what it has');
    this.#returned = 0;
    if (this.receiving.isDue) this.#credits.push(this.receiving.tell());
  }

  play({ do: what, bytes }: Step): void {
    if (what === 'send') this.send(bytes);
    else if (what === 'consume') this.consume(bytes);
    else if (what === 'give back') this.giveBack();
    else if (what === 'hear returned') this.hearReturned();
    else this.hear(what === 'late');
  }

  /** The oldest credit, or one that comes a second time, late. */
  hear(isLate: boolean): void {
    const credit = isLate ? this.#credits[0] : this.#credits.shift();
    if (credit !== undefined) this.sending.extend(credit);
  }

  hearAll(): void {
    this.hearReturned();
    for (const credit of this.#credits.splice(0)) this.sending.extend(credit);
  }
}

interface Step {
  readonly stream: number;
  readonly do: 'send' | 'consume' | 'hear' | 'late' | 'give back' | 'hear returned';
  readonly bytes: number;
}

const step: fc.Arbitrary<Step> = fc.record({
  stream: fc.nat({ max: 4 }),
  do: fc.constantFrom('send', 'consume', 'hear', 'late', 'give back', 'hear returned'),
  bytes: fc.integer({ min: 1, max: 40_000 }),
});

describe('the window of a sender', () => {
  test('a credit that is behind what is known changes nothing', () => {
    const window = new SendWindow();
    window.extend(10_000);
    window.extend(4000);
    window.extend(0);
    assert.equal(window.availableBytes, 10_000);
    window.send(10_000);
    window.extend(9000);
    assert.equal(window.availableBytes, 0);
  });

  test('credits count on through 2^32, as often as that takes', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: 0x7fff_ffff }), { maxLength: 50 }), (grants) => {
        const window = new SendWindow();
        let limit = 0;
        for (const grant of grants) {
          const before = limit % TWO_32;
          limit += grant;
          window.extend(limit % TWO_32);
          assert.equal(window.availableBytes, limit - window.sentBytes);
          if (grant > 0) window.extend(before);
          assert.equal(window.availableBytes, limit - window.sentBytes, 'old news');
          window.send(Math.floor(window.availableBytes / 2));
        }
      }),
    );
  });
});

describe('the window of a receiver', () => {
  test('a byte more than was granted is refused', () => {
    const window = new ReceiveWindow(new MemoryBudget(1 << 20), 8192, 65_536);
    assert.equal(window.receive(8192), true);
    assert.equal(window.receive(1), false);
    window.consume(8192);
    assert.equal(window.receive(1), true);
  });

  test('it never exceeds its limit, however quick the program is', () => {
    const window = new ReceiveWindow(new MemoryBudget(1 << 24), 8192, 65_536);
    let granted = window.tell();
    let received = 0;
    for (let round = 0; round < 1000; round++) {
      assert.ok(granted - received <= 65_536, `${granted - received} bytes open`);
      window.receive(granted - received);
      window.consume(granted - received);
      received = granted;
      granted = window.tell();
      assert.ok(granted > received, 'it goes on');
    }
    assert.equal(granted - received, 65_536);
  });

  test('closing gives back what is promised, once', () => {
    const budget = new MemoryBudget(1 << 20);
    const window = new ReceiveWindow(budget, 8192, 65_536);
    window.receive(5000);
    window.consume(3000);
    window.close();
    window.close();
    assert.equal(budget.promisedBytes, 0);
  });
});

describe('streams that share a budget', () => {
  test('no stream sends more than was granted, and memory exceeds the budget by no more than the least of each', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 4096, max: 200_000 }),
        fc.constantFrom(4096, 8192, 65_536),
        fc.array(step, { maxLength: 300 }),
        (limitBytes, firstBytes, steps) => {
          const budget = new MemoryBudget(limitBytes);
          const streams = Array.from({ length: 5 }, () => new Direction(budget, firstBytes, 131_072));
          const most = limitBytes + streams.length * LEAST_WINDOW_BYTES;
          for (const one of steps) {
            streams[one.stream].play(one);
            const waiting = streams.reduce((sum, { waitingBytes }) => sum + waitingBytes, 0);
            assert.ok(waiting <= most, `${waiting} bytes wait, ${limitBytes} may, and the least of each`);
            assert.ok(budget.promisedBytes <= limitBytes, `${budget.promisedBytes} promised of ${limitBytes}`);
          }
          for (const { receiving } of streams) receiving.close();
          assert.equal(budget.promisedBytes, 0);
        },
      ),
      { numRuns: 200 },
    );
  });

  test('a stream that is read can always go on, whatever the others hold', () => {
    fc.assert(
      fc.property(fc.integer({ min: 4096, max: 100_000 }), fc.array(step, { maxLength: 200 }), (limitBytes, steps) => {
        const budget = new MemoryBudget(limitBytes);
        const streams = Array.from({ length: 5 }, () => new Direction(budget, 8192, 65_536));
        for (const one of steps) streams[one.stream].play(one);
        const [read] = streams;
        for (let sent = 0, rounds = 0; sent < 300_000; rounds++) {
          read.consume(Number.MAX_SAFE_INTEGER);
          read.hearAll();
          sent += read.send(32_768);
          assert.ok(rounds < 1000, `it stands still after ${sent} bytes`);
        }
      }),
      { numRuns: 100 },
    );
  });

  test('streams that are idle leave all of it to those that are busy', () => {
    const budget = new MemoryBudget(1 << 20);
    const idle = Array.from({ length: 1000 }, () => new Direction(budget, 65_536, 1 << 20));
    assert.ok(budget.promisedBytes > (1 << 20) / 2, 'they have it before they give it back');
    for (const one of idle) {
      one.giveBack();
      one.hearReturned();
    }
    assert.equal(budget.promisedBytes, 0);
    const busy = new Direction(budget, 65_536, 1 << 20);
    for (let round = 0; round < 20; round++) {
      busy.send(1 << 20);
      busy.consume(1 << 20);
      busy.hearAll();
    }
    assert.ok(busy.sending.availableBytes >= 1 << 18, `${busy.sending.availableBytes} bytes`);
    // One that wakes up has the least at once, and the rest after it was read.
    const [woken] = idle;
    assert.equal(woken.send(100_000), LEAST_WINDOW_BYTES);
    woken.consume(LEAST_WINDOW_BYTES);
    woken.hearAll();
    assert.ok(woken.send(100_000) >= 32_768);
  });

  test('credit that a peer does not have cannot be given back', () => {
    const window = new ReceiveWindow(new MemoryBudget(1 << 20), 8192, 65_536);
    window.tell();
    assert.equal(window.giveBack(8193), false);
    assert.equal(window.giveBack(4096), true);
    assert.equal(window.receive(4097), false);
    assert.equal(window.receive(4096), true);
  });
});
