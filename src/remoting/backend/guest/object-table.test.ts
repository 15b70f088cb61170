// Handles: each finds its own object until that is removed, and nothing afterwards.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { ObjectTable } from './object-table.ts';

interface Kinds {
  readonly qp: { readonly name: string };
  readonly cq: { readonly name: string };
}

const usage = { code: 'MILLRACE_ERR_USAGE' };

test('a handle of another kind, a removed one and a made-up one find nothing', () => {
  const table = new ObjectTable<Kinds>();
  const qp = table.add('qp', { name: 'a' });
  assert.notEqual(qp, 0);
  assert.throws(() => table.get('cq', qp), usage);
  for (const handle of [0, 1, 65_535, 0xffff_ffff, qp + 1, qp + 65_536])
    assert.throws(() => table.get('qp', handle), usage);
  table.remove(qp);
  table.remove(qp);
  assert.equal(table.count, 0);
  assert.throws(() => table.get('qp', qp), usage);
  assert.notEqual(table.add('qp', { name: 'b' }), qp);
});

test('any order of adding and removing keeps every handle to its own object', () => {
  fc.assert(
    fc.property(fc.array(fc.nat(20), { maxLength: 200 }), (choices) => {
      const table = new ObjectTable<Kinds>();
      const alive = new Map<number, Kinds['qp']>();
      const dead: number[] = [];
      for (const [index, choice] of choices.entries()) {
        const victim = [...alive.keys()][choice];
        if (victim === undefined) {
          const object = { name: String(index) };
          alive.set(table.add('qp', object), object);
        } else {
          table.remove(victim);
          alive.delete(victim);
          dead.push(victim);
        }
      }
      for (const [handle, object] of alive) assert.equal(table.get('qp', handle), object);
      for (const handle of dead) if (!alive.has(handle)) assert.throws(() => table.get('qp', handle), usage);
      assert.equal(table.count, alive.size);
    }),
  );
});
