import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { UsageError } from '../../errors.ts';
import { decodeMessage, encodeMessage, type Message, strategies, wires } from './protocol.ts';

const overTheWire = (message: Message): Message => decodeMessage(JSON.parse(JSON.stringify(encodeMessage(message))));

const offer = {
  sizeBytes: null,
  blockBytes: 65_536,
  poolBlocks: 8,
  wire: 'tcp',
  strategy: 'pool',
  token: '0'.repeat(32),
};

const endpoint = { qpNumber: 7, psn: 3, gid: '::1', lid: 0, mtu: 1024, regions: {} } as const;

describe('messages that are refused', () => {
  const wrong: Readonly<Record<string, readonly [value: unknown, reason: RegExp]>> = {
    'no object': [17, /not an object but 17/],
    nothing: [{}, /no known kind/],
    'an unknown kind': [{ hurry: true }, /hurry/],
    'two at once': [{ ready: true, done: true }, /more than one part/],
    'another protocol': [{ millrace: 'control', version: 1 }, /speaks "control"/],
    'another version': [{ millrace: 'vortex', version: 2, wire: null, strategy: null }, /version 2 .* this side 1/],
    'a hello with more': [
      { millrace: 'vortex', version: 1, wire: null, strategy: null, name: 'x' },
      /unknown part: name/,
    ],
    'an unknown wire': [{ millrace: 'vortex', version: 1, wire: 'pigeon', strategy: null }, /wire is "pigeon"/],
    'an unknown strategy': [{ millrace: 'vortex', version: 1, wire: null, strategy: 'luck' }, /strategy is "luck"/],
    'blocks of an odd size': [{ offer: { ...offer, blockBytes: 65_537 } }, /no power of two/],
    'blocks too small': [{ offer: { ...offer, blockBytes: 4096 } }, /blockBytes is 4096/],
    'a negative size': [{ offer: { ...offer, sizeBytes: -1 } }, /sizeBytes is -1/],
    'a size that is no number': [{ size: '12' }, /size is "12"/],
    'a size past 2^53': [{ size: 2 ** 53 }, /size is 9007199254740992/],
    'a token of other digits': [{ offer: { ...offer, token: 'z'.repeat(32) } }, /token/],
    'a pool of one block': [{ accept: { poolBlocks: 1, path: [] } }, /poolBlocks is 1/],
    'one queue pair': [{ connect: { path: [{ v: 1, ...endpoint }] } }, /not two queue pairs/],
    'queue pairs that are none': [{ connect: { path: [1, 2] } }, /not an object/],
    'a done that is not': [{ done: false }, /done that is not true/],
  };
  for (const [name, [value, reason]] of Object.entries(wrong)) {
    test(name, () => {
      assert.throws(
        () => decodeMessage(value),
        (error) => error instanceof UsageError && reason.test(error.message),
      );
    });
  }

  test('whatever comes, it is a message or a UsageError', () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        try {
          decodeMessage(value);
        } catch (error) {
          assert.ok(error instanceof UsageError);
        }
      }),
    );
  });
});

describe('messages', () => {
  const anyMessage: fc.Arbitrary<Message> = fc.oneof(
    fc.record({
      kind: fc.constant('hello' as const),
      wire: fc.option(fc.constantFrom(...wires), { nil: undefined }),
      strategy: fc.option(fc.constantFrom(...strategies), { nil: undefined }),
    }),
    fc.record({
      kind: fc.constant('offer' as const),
      sizeBytes: fc.option(fc.maxSafeNat(), { nil: undefined }),
      blockBytes: fc.integer({ min: 16, max: 26 }).map((shift) => 2 ** shift),
      poolBlocks: fc.integer({ min: 2, max: 65_536 }),
      wire: fc.constantFrom(...wires),
      strategy: fc.constantFrom(...strategies),
      token: fc.constant('0123456789abcdef'.repeat(2)),
    }),
    fc.record({ kind: fc.constant('accept' as const), poolBlocks: fc.constant(4), path: fc.constant([]) }),
    fc.record({ kind: fc.constantFrom('ready' as const, 'done' as const) }),
    fc.record({ kind: fc.constant('size' as const), sizeBytes: fc.maxSafeNat() }),
    fc.record({ kind: fc.constantFrom('ping' as const, 'pong' as const), number: fc.nat() }),
  );

  test('arrive as they were sent', () => {
    fc.assert(fc.property(anyMessage, (message) => assert.deepEqual(overTheWire(message), { ...message })));
  });

  test('a path arrives as it was sent', () => {
    const pool = { address: 2 ** 44, rkey: 9, sizeBytes: 65_536 };
    const arrived = overTheWire({ kind: 'connect', path: [{ ...endpoint, regions: { pool } }, endpoint] });
    assert.equal(arrived.kind, 'connect');
    assert.deepEqual({ ...(arrived.kind === 'connect' && arrived.path[0]?.regions.pool) }, pool);
  });

  test('a reason has no more than one line, and nothing that moves a cursor', () => {
    const arrived = overTheWire({ kind: 'bye', reason: `\u001b[2J${'x\n'.repeat(500)}` });
    assert.ok(arrived.kind === 'bye' && /^[\x20-\x7e]{1,200}$/.test(arrived.reason));
  });
});
