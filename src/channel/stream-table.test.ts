// Stream ids: never two streams of one id, and none that is taken for an earlier one.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { MAX_STREAMS, StreamTable } from './stream-table.ts';

describe('a table of streams', () => {
  test('has a limit, and no id beyond it', () => {
    const table = new StreamTable<{ id: number }>(true);
    const first = { id: table.allocate() };
    table.set(first);
    for (let count = 1; count < MAX_STREAMS; count++) table.set({ id: table.allocate() });
    assert.deepEqual([table.allocate(), table.count], [-1, MAX_STREAMS]);
    table.delete(first);
    assert.notEqual(table.allocate(), first.id);
  });

  test('the ids of the two sides are not mistaken for each other', () => {
    const [dialer, acceptor] = [new StreamTable<{ id: number }>(true), new StreamTable<{ id: number }>(false)];
    const [ours, theirs] = [{ id: dialer.allocate() }, { id: acceptor.allocate() }];
    assert.notEqual(ours.id, theirs.id);
    assert.deepEqual([dialer.isFreeForPeer(ours.id), dialer.isFreeForPeer(theirs.id)], [false, true]);
    dialer.set(ours);
    dialer.set(theirs);
    assert.deepEqual([dialer.get(ours.id), dialer.get(theirs.id)], [ours, theirs]);
    assert.equal(dialer.isFreeForPeer(theirs.id), false);
    assert.deepEqual([...dialer], [ours, theirs]);
  });

  test('an index that is free again rests, and comes back with another generation', () => {
    fc.assert(
      fc.property(fc.array(fc.nat({ max: 9 }), { maxLength: 400 }), (picks) => {
        const table = new StreamTable<{ id: number }>(false);
        const open: { id: number }[] = [];
        const used = new Set<number>();
        for (const pick of picks) {
          if (pick < open.length) {
            const [stream] = open.splice(pick, 1);
            table.delete(stream);
            // Twice does no harm, and the name means nothing any more.
            table.delete(stream);
            assert.equal(table.get(stream.id), undefined);
          } else {
            const stream = { id: table.allocate() };
            assert.ok(!used.has(stream.id), `${stream.id} a second time`);
            used.add(stream.id);
            table.set(stream);
            open.push(stream);
          }
          assert.equal(table.count, open.length);
          for (const stream of open) assert.equal(table.get(stream.id), stream);
        }
      }),
    );
  });
});
