import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { UsageError } from '../errors.ts';
import { decodeNodeEntry, encodeNodeValue } from './node-entry.ts';
import { MAX_NODES, NodeTable } from './node-table.ts';

const decode = (value: string | Uint8Array, name = 'b') => decodeNodeEntry(name, Buffer.from(value));
const good = '{"v":1,"host":"10.0.0.2","port":4790}';

describe("a node's entry", () => {
  test('that is invalid is refused with the reason', () => {
    for (const [value, reason] of [
      ['', /not a JSON object/],
      ['null', /not a JSON object/],
      ['[1]', /not a JSON object/],
      ['{"v":1', /not a JSON object/],
      [Uint8Array.of(0x7b, 0xff, 0x7d), /not a JSON object/],
      ['{}', /version/],
      ['{"v":"1","host":"a","port":1}', /version/],
      ['{"v":1,"port":1}', /host/],
      ['{"v":1,"host":"a b","port":1}', /host/],
      ['{"v":1,"host":"0.0.0.0","port":1}', /host/],
      ['{"v":1,"host":"::","port":1}', /host/],
      ['{"v":1,"host":"10.0.0.300","port":1}', /host/],
      [`{"v":1,"host":"${'a.'.repeat(200)}a","port":1}`, /host/],
      ['{"v":1,"host":"a","port":0}', /port/],
      ['{"v":1,"host":"a","port":65536}', /port/],
      ['{"v":1,"host":"a","port":1.5}', /port/],
      ['{"v":1,"host":"a","port":"1"}', /port/],
      [`${good}${' '.repeat(1024)}`, /more than 1024 bytes/],
    ] as const) {
      assert.throws(() => decode(value), { code: 'MILLRACE_ERR_USAGE', message: reason }, String(value));
    }
    for (const name of ['', 'a b', 'a/b', '.a', 'x'.repeat(64), 'ä']) {
      assert.throws(() => decode(good, name), /its key is not a node name/, name);
    }
  });

  test('is what was written, whatever later versions add', () => {
    for (const host of ['10.0.0.2', 'fd00::2', 'b.example']) {
      const value = encodeNodeValue({ name: 'b', host, port: 4790 });
      assert.deepEqual(decode(value), { name: 'b', host, port: 4790, source: 'etcd' });
    }
    assert.equal(decode('{"v":1,"host":"a","port":1,"more":[]}').host, 'a');
  });

  test('is an entry or a UsageError, never anything else', () => {
    fc.assert(
      fc.property(fc.oneof(fc.json(), fc.string()), fc.string(), (value, name) => {
        try {
          decode(value, name);
        } catch (error) {
          assert.ok(error instanceof UsageError);
        }
      }),
    );
  });
});

describe('the table of nodes', () => {
  const entry = (name: string, value = good) => ({ name, value: Buffer.from(value) });
  const make = () => {
    const errors: string[] = [];
    const table = new NodeTable('self', 1000, (message) => errors.push(message));
    return { table, errors, names: () => [...table.peers].map(({ name }) => name).join(' ') };
  };

  test('tells each bad entry once, and again when it is bad in another way', () => {
    const { table, errors, names } = make();
    table.replace([entry('a'), entry('b', 'x'), entry('self')], 0);
    table.replace([entry('a'), entry('b', 'y')], 0);
    table.put(entry('b', '{"v":2}'));
    assert.equal(names(), 'a');
    assert.equal(errors.length, 2);
    table.put(entry('\u001b[2Jx\ny', 'x'));
    assert.match(errors[2] ?? '', /ignored the etcd entry of node 'x\\x0ay'/);
  });

  test('keeps who was not seen again for the grace, unless it is told to have left', () => {
    const { table, names } = make();
    table.replace([entry('a'), entry('b'), entry('c')], 0);
    assert.equal(table.nextSweepMs, Number.POSITIVE_INFINITY);
    table.replace([entry('a')], 100);
    assert.equal(table.nextSweepMs, 1100);
    assert.equal(names(), 'a b c');
    table.replace([entry('a')], 500);
    table.put(entry('b'));
    table.sweep(1099);
    assert.equal(names(), 'a b c');
    table.sweep(1100);
    assert.equal(names(), 'a b');
    table.remove('b');
    assert.equal(names(), 'a');
  });

  test('has an end', () => {
    const { table, errors } = make();
    table.replace(
      Array.from({ length: MAX_NODES + 10 }, (_, index) => entry(`n${index}`)),
      0,
    );
    assert.equal([...table.peers].length, MAX_NODES);
    assert.deepEqual(errors, [`etcd has more than ${MAX_NODES} nodes; the others are ignored`]);
  });
});
