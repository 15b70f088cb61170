// Direct streams with a program or a peer that writes what cannot be: a program ends its own stream
// at most, and a peer makes a protocol error.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type DirectEnd, DirectPairs, RING_BYTES } from './fixtures/direct-pair.ts';
import type { DirectProgram } from './fixtures/direct-program.ts';
import type { Link } from './link.ts';
import { mirrorWords, recordKinds } from './record-layout.ts';

const { data, credit, from, mirror, opened, openDirect, shut } = recordKinds;

/** Two connections of the same two programs, of which one is to go on. */
async function twoPairs(pairs: DirectPairs): Promise<[DirectEnd, DirectEnd, DirectEnd, DirectEnd]> {
  return [...(await pairs.promoted(0, [100, 200])), ...(await pairs.promoted(1))];
}

async function assertUnharmed(pairs: DirectPairs, one: DirectEnd, other: DirectEnd): Promise<void> {
  one.program.write(3000);
  other.program.write(3000);
  await pairs.until('the connection beside it works', () => {
    for (const { program } of [one, other]) program.read(3000);
    return one.program.received === 3000 && other.program.received === 3000;
  });
  assert.deepEqual(
    pairs.joined.sides.flatMap(({ protocolErrors }) => protocolErrors),
    [],
  );
}

describe('a hostile program', () => {
  const tricks: readonly [string, (program: DirectProgram) => void][] = [
    ['writes more than its ring has', (program) => program.spoil('out', 'written', 101 + RING_BYTES)],
    ['writes backwards', (program) => program.spoil('out', 'written', 99)],
    [
      'writes more than its ring has beyond what was read',
      (program) => {
        program.write(RING_BYTES);
        program.spoil('out', 'written', 100 + 2 * RING_BYTES);
      },
    ],
    ['reads ahead of what was written', (program) => program.spoil('in', 'read', 201)],
    ['reads backwards', (program) => program.spoil('in', 'read', 199)],
    ['begins its ring a second time', (program) => program.spoil('out', 'from', 500)],
    ['begins its ring far away', (program) => program.spoil('out', 'from', 101, 77)],
    ['ends the ring that it reads as its writer', (program) => program.spoil('in', 'until', 12, 34)],
  ];
  for (const [name, trick] of tricks) {
    test(`that ${name} loses that connection only`, async () => {
      await using pairs = await DirectPairs.up();
      const [left, right, ...beside] = await twoPairs(pairs);
      trick(left.program);
      await pairs.until('the other one is lost', () => right.program.isLost);
      assert.ok(left.program.isInLost);
      await assertUnharmed(pairs, ...beside);
      for (const end of [left, right]) pairs.unmirror(end, false);
      assert.equal(pairs.joined.dialer.sessions[0].state, 'up');
    });
  }

  for (const [low, high] of [
    [0, 0x8000_0000],
    [1, 0x2000_0000],
    [5, 0x0020_0000],
  ]) {
    test(`whose ring begins at ${high}:${low} is lost before it is told`, async () => {
      await using pairs = await DirectPairs.up();
      const [left, right] = pairs.connect();
      left.program.spoil('out', 'from', low, high);
      await pairs.until('it is lost', () => left.program.isLost && right.program.isLost);
      assert.equal(right.program.inPosition, -1);
    });
  }

  test('that rings for slots which nobody uses, and moves the start of its ring, harms nobody', async () => {
    await using pairs = await DirectPairs.up();
    const [left, right, ...beside] = await twoPairs(pairs);
    const { arena } = left.program;
    arena.words.fill(-1, 32, 34);
    for (let slot = 0; slot < 64; slot++) arena.changed(slot);
    left.program.out.store(1, 0x7fff_fff3);
    left.program.spoil('out', 'written', 100 + RING_BYTES);
    await pairs.until('garbage has come', () => right.program.readable === RING_BYTES);
    await assertUnharmed(pairs, ...beside);
  });

  test('that writes noise into all words of its slot ends nothing else', async () => {
    for (const noise of [0, -1, 0x5555_5555, 1]) {
      await using pairs = await DirectPairs.up();
      const [left, right, ...beside] = await twoPairs(pairs);
      const at = 64 + 37 * 64;
      left.program.arena.words.fill(noise, at, at + 64);
      left.program.spoil('in', 'isGone', noise);
      left.program.write(0);
      await pairs.turns(30);
      assert.ok(right.program.isLost);
      await assertUnharmed(pairs, ...beside);
    }
  });
});

describe('a peer that makes protocol errors on a direct stream', () => {
  /** `id` is the stream's. */
  type Trick = (link: Link, id: number) => void;

  function put(link: Link, kind: number, id: number, options: { size?: number; credit?: number; value?: number } = {}) {
    const { size = 0, credit: allowance = -1, value = 0 } = options;
    assert.ok(link.outgoing.fits(size));
    new Uint8Array(link.outgoing.memory.buffer).fill(
      0,
      link.outgoing.payloadOffset,
      link.outgoing.payloadOffset + size,
    );
    link.outgoing.commit(kind, id, size, allowance, value);
  }

  const tricks: readonly [string, 'promoted' | 'connected', Trick, RegExp][] = [
    ['data before its ring begins', 'connected', (link, id) => put(link, data, id, { size: 8 }), /more than it may/],
    [
      'more data than its reader has room for',
      'promoted',
      (link, id) => {
        for (let size = 0; size <= RING_BYTES; size += 1024) put(link, data, id, { size: 1024 });
      },
      /more than it may/,
    ],
    [
      'a credit ahead of what was sent',
      'promoted',
      (link, id) => put(link, credit, id, { credit: 1 }),
      /has read more/,
    ],
    [
      'a credit of a ring that has not begun',
      'connected',
      (link, id) => put(link, credit, id, { credit: 0 }),
      /has read/,
    ],
    ['a ring that begins twice', 'promoted', (link, id) => put(link, from, id, { size: 4 }), /a second time/],
    ['a ring that begins nowhere', 'connected', (link, id) => put(link, from, id), /nowhere/],
    ['words that there are not', 'promoted', (link, id) => put(link, mirror, id, { value: 64 }), /mirrors 64/],
    [
      'a ring seen that has not begun',
      'connected',
      (link, id) => put(link, mirror, id, { value: mirrorWords.seen }),
      /mirrors 2/,
    ],
    [
      'the end of a ring that has not begun',
      'connected',
      (link, id) => put(link, mirror, id, { value: mirrorWords.ended }),
      /mirrors 32/,
    ],
    [
      'data after the end',
      'promoted',
      (link, id) => {
        put(link, mirror, id, { value: mirrorWords.ended });
        put(link, data, id, { size: 8 });
      },
      /more than it may/,
    ],
    ['an end of a leg', 'promoted', (link, id) => put(link, shut, id), /which is direct/],
    ['a server that accepted', 'promoted', (link, id) => put(link, opened, id, { credit: 0 }), /which is direct/],
    ['a key that is too short', 'promoted', (link) => put(link, openDirect, 200, { size: 8 }), /without its key/],
    ['an id that is in use', 'promoted', (link, id) => put(link, openDirect, id, { size: 16 }), /a second time/],
    ['words of a stream that is not open', 'promoted', (link) => put(link, mirror, 200), /which is not open/],
  ];
  for (const [name, state, trick, reason] of tricks) {
    test(`${name} is one, and loses the slots of that link`, async () => {
      await using pairs = await DirectPairs.up();
      const ends = state === 'promoted' ? await pairs.promoted() : pairs.connect();
      await pairs.turns(20);
      trick(pairs.joined.dialer.sessions[0].link ?? assert.fail(), ends[0].stream.id);
      pairs.joined.dialer.wake();
      await pairs.until('it is found out', () => pairs.joined.acceptor.protocolErrors.length > 0);
      assert.match(pairs.joined.acceptor.protocolErrors[0], reason);
      await pairs.until('its slot is lost', () => ends[1].program.isTakenBack);
    });
  }

  test('records that cross with the end of the stream are none', async () => {
    await using pairs = await DirectPairs.up();
    const [left, right] = await pairs.promoted();
    pairs.unmirror(right, false);
    const link = pairs.joined.dialer.sessions[0].link ?? assert.fail();
    for (let count = 0; count < 8; count++) put(link, data, left.stream.id, { size: 1024, credit: 77 });
    put(link, mirror, left.stream.id, { value: 0xffff });
    await pairs.until('it is lost', () => left.program.isLost);
    await pairs.joined.assertNothingIsLeft();
    assert.deepEqual(pairs.joined.acceptor.protocolErrors, []);
  });
});
