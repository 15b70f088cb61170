import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { SharedMemory } from '../../native/index.ts';
import { access, type ProviderQp, sgeRow, write64 } from '../../verbs/index.ts';
import { Pieces } from './pieces.ts';
import { RegionTable, resolveSges } from './region.ts';

const everything = 15;

function setUp(stack: DisposableStack) {
  let revocations = 0;
  const table = new RegionTable(() => revocations++);
  const memory = stack.use(SharedMemory.create({ sizeBytes: 8192 }));
  const pd = {};
  const region = table.add(pd, { memory, offset: 100, sizeBytes: 1000, access: everything });
  return { table, memory, pd, region, revocations: () => revocations };
}

describe('memory regions', () => {
  test('a key opens its region to its own protection domain only', () => {
    using stack = new DisposableStack();
    const { table, pd, region } = setUp(stack);
    assert.equal(table.local(region.lkey, pd), region);
    assert.equal(table.local(region.lkey, {}), undefined);
    assert.equal(table.local(region.lkey + 1, pd), undefined);
    assert.equal(table.remote(region.rkey, pd, 5, access.remoteWrite), region);
    assert.equal(table.remote(region.rkey, {}, 5, access.remoteWrite), undefined);
  });

  test('a grant opens what it says, to one QP, until it is revoked', () => {
    using stack = new DisposableStack();
    const { table, pd, region, revocations } = setUp(stack);
    const rkey = region.grant({ number: 5 } as ProviderQp, access.remoteRead);
    assert.equal(table.remote(rkey, pd, 5, access.remoteRead), region);
    assert.equal(table.remote(rkey, pd, 5, access.remoteWrite), undefined);
    assert.equal(table.remote(rkey, pd, 6, access.remoteRead), undefined);
    region.revoke(rkey);
    assert.equal(revocations(), 1);
    assert.equal(table.remote(rkey, pd, 5, access.remoteRead), undefined);
    assert.equal(table.remote(region.rkey, pd, 5, access.remoteRead), region);
    assert.throws(() => region.revoke(rkey), { code: 'MILLRACE_ERR_USAGE' });
  });

  test('closing a region ends all its keys', () => {
    using stack = new DisposableStack();
    const { table, pd, region } = setUp(stack);
    const rkey = region.grant({ number: 5 } as ProviderQp, access.remoteRead);
    assert.equal(table.local(region.lkey, pd), region);
    region.close();
    assert.equal(table.local(region.lkey, pd), undefined);
    assert.equal(table.remote(region.rkey, pd, 5, 0), undefined);
    assert.equal(table.remote(rkey, pd, 5, 0), undefined);
  });

  test('memory that its owner closed is not reached by its keys', () => {
    using stack = new DisposableStack();
    const { table, memory, pd, region } = setUp(stack);
    memory.close();
    assert.equal(table.local(region.lkey, pd), undefined);
    assert.equal(table.remote(region.rkey, pd, 5, 0), undefined);
  });

  test('a range is found exactly when all of it is inside', () => {
    using stack = new DisposableStack();
    const { table, pd, region, memory } = setUp(stack);
    const pieces = new Pieces();
    const words = new Uint32Array(sgeRow.words);
    fc.assert(
      fc.property(fc.integer({ min: -1100, max: 1100 }), fc.integer({ min: 1, max: 1100 }), (start, length) => {
        write64(words, sgeRow.address, region.address + start);
        words[sgeRow.length] = length;
        words[sgeRow.lkey] = region.lkey;
        pieces.clear();
        const isInside = start >= 0 && start + length <= 1000;
        assert.equal(resolveSges(table, pd, words, 0, 1, access.localWrite, pieces), isInside);
        if (isInside) assert.deepEqual([pieces.memories[0], pieces.offsets[0]], [memory, 100 + start]);
      }),
    );
  });
});
