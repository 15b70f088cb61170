// Runs in a process of its own: it counts the threads and descriptors of its process.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { addon } from './addon.ts';
import {
  EventFd,
  failAllPagers,
  failPagersOf,
  loadAcquire,
  Pager,
  type PagerOptions,
  SharedMemory,
  storeRelease,
} from './index.ts';

const BLOCK = 64 * 1024;
const POOL = 4;
/** Words of the ledger, as in src/vortex/stream/block-queue.ts. */
const FAILURE = 4;
const COMMITTED = 16;
const RELEASED = 32;
const TERMINATED = 9;

/** A queue of blocks made by hand, and a window of eight blocks over it. */
class Rig implements Disposable {
  readonly pool = SharedMemory.create({ name: 'rig-pool', sizeBytes: POOL * BLOCK });
  readonly ledger = SharedMemory.create({ name: 'rig-ledger', sizeBytes: 4096 });
  readonly own = EventFd.create();
  readonly other = EventFd.create();
  readonly doorbell = EventFd.create();
  readonly pager: Pager;

  constructor(role: 'producer' | 'consumer', options: Partial<PagerOptions> = {}) {
    this.pager = Pager.start({
      role,
      pool: this.pool.fd,
      ledger: this.ledger.fd,
      ownEvent: this.own.fd,
      otherEvent: this.other.fd,
      doorbell: this.doorbell.fd,
      windowBytes: 8 * BLOCK,
      blockBytes: BLOCK,
      poolBlocks: POOL,
      revisitBlocks: 1,
      readAheadBlocks: 1,
      timeoutMs: 10_000,
      doesClear: false,
      owners: [12_345],
      ...options,
    });
  }

  set(word: number, value: number): void {
    storeRelease(this.ledger.words, word, value);
    this.own.signal();
  }

  [Symbol.dispose](): void {
    this.pager.close();
    for (const part of [this.pool, this.ledger, this.own, this.other, this.doorbell]) part.close();
  }
}

describe('a pager', () => {
  test('sizes that cannot be, a pool too small and something else than a pager are refused', () => {
    for (const wrong of [{ windowBytes: BLOCK + 1 }, { blockBytes: 1000 }, { windowBytes: 0 }, { revisitBlocks: -1 }]) {
      assert.throws(() => new Rig('producer', wrong), RangeError);
    }
    assert.throws(() => new Rig('producer', { poolBlocks: 5 }), { code: 'EINVAL' });
    assert.throws(() => new Rig('producer', { pool: 9999 }), { code: 'EBADF' });
    assert.throws(() => addon.pagerFinish({} as never, 1), TypeError);
    assert.throws(() => addon.pagerStop(7 as never, new ArrayBuffer(1)), TypeError);
  });

  test('shows a consumer its blocks and gives back what lies behind', () => {
    using rig = new Rig('consumer');
    const stored = new Uint8Array(rig.pool.buffer);
    for (let slot = 0; slot < POOL; slot++) stored.fill(slot + 1, slot * BLOCK, (slot + 1) * BLOCK);
    const bytes = new Uint8Array(rig.pager.buffer);
    rig.set(COMMITTED, 4);
    assert.deepEqual([bytes[5], bytes[BLOCK], bytes[2 * BLOCK + 9], bytes[3 * BLOCK]], [1, 2, 3, 4]);
    while (loadAcquire(rig.ledger.words, RELEASED) < 2);
    rig.set(COMMITTED, 6);
    assert.equal(bytes[5 * BLOCK], 2);
    assert.equal(rig.ledger.words[FAILURE], 0);
  });

  test('takes a block from a producer only when the window does not show it any more', () => {
    using rig = new Rig('producer');
    const bytes = new Uint8Array(rig.pager.buffer);
    bytes.fill(7, 0, 3 * BLOCK);
    while (loadAcquire(rig.ledger.words, COMMITTED) < 1);
    assert.equal(new Uint8Array(rig.pool.buffer)[100], 7);
    assert.equal(bytes[100], 0);
    assert.equal(rig.ledger.words[FAILURE], 4);
  });

  test('is failed from elsewhere, by its owner or with all others', () => {
    for (const [owner, fail] of [
      [12_346, () => failPagersOf(12_346, TERMINATED)],
      [12_347, () => failAllPagers(TERMINATED)],
    ] as const) {
      using rig = new Rig('consumer', { owners: [3, owner] });
      assert.equal(fail(), 1);
      assert.equal(new Uint8Array(rig.pager.buffer)[0], 0);
      assert.equal(rig.ledger.words[FAILURE], TERMINATED);
    }
    // A thread that is to end gets no new ones.
    assert.throws(() => new Rig('consumer', { owners: [12_346] }), { code: 'ECANCELED' });
  });

  test('leaves no thread, descriptor or mapping behind, and its views have length 0', () => {
    const held = (): readonly number[] => [
      readdirSync('/proc/self/fd').length,
      readdirSync('/proc/self/task').length,
      readFileSync('/proc/self/maps', 'utf8').split('/memfd:vortex').length,
    ];
    const before = held();
    const views: Uint8Array[] = [];
    for (let index = 0; index < 20; index++) {
      using rig = new Rig('producer');
      const view = new Uint8Array(rig.pager.buffer);
      view[0] = 1;
      views.push(view);
      rig.pager.close();
    }
    assert.ok(views.every(({ length }) => length === 0));
    // Node may have let go of something of its own meanwhile.
    assert.ok(
      held().every((count, index) => count <= before[index]),
      `${held().join()} after ${before.join()}`,
    );
  });
});
