// A peer that makes protocol errors: they are detected, its streams end, and a session beside it is
// not affected.

import assert from 'node:assert/strict';
import { constants } from 'node:os';
import { describe, test } from 'node:test';
import { storeRelease } from '../native/index.ts';
import { Joined } from './fixtures/joined.ts';
import type { Link } from './link.ts';
import { OPEN_PAYLOAD_BYTES } from './open-record.ts';
import { recordKinds, recordWords } from './record-layout.ts';
import { controlOffset, controlWords, regionBytes } from './region-layout.ts';

const { open, opened, data, shut, reset, credit, refused, returned } = recordKinds;
const BYTES = 60_000;

/** What the dialer's side does instead of what its streams want. */
type Trick = (link: Link) => void;

function put(link: Link, kind: number, stream: number, size = 0, allowance = -1): void {
  assert.ok(link.outgoing.fits(size));
  link.outgoing.commit(kind, stream, size, allowance);
}

function openOne(link: Link, stream: number): void {
  new Uint8Array(link.outgoing.memory.buffer).fill(0, link.outgoing.payloadOffset, link.outgoing.payloadOffset + 40);
  put(link, open, stream, OPEN_PAYLOAD_BYTES, 8192);
}

/**
 * Plays a trick on the first session while the second one works; what the other side then says of
 * it.
 */
async function play(trick: Trick, devices = ['soft-shm']): Promise<string[]> {
  await using joined = await Joined.up({ devices });
  joined.join({ devices });
  await joined.untilUp();
  const beside = await joined.connect(joined.dialer, 1);
  for (const program of beside) program.toSend = BYTES;
  joined.acceptor.refusal = constants.errno.ECONNREFUSED;
  const [link] = joined.dialer.sessions.map((session) => session.link ?? assert.fail());
  trick(link);
  joined.dialer.wake();
  await joined.until('the session beside it is done', () => beside.every(({ received }) => received === BYTES));
  for (let turns = 0; turns < 50; turns++) await joined.turn();
  const [, unharmed] = joined.acceptor.sessions;
  assert.equal(unharmed?.state, 'up');
  // It ended; nobody closes the control connection here, so the dialer begins anew.
  if (joined.acceptor.protocolErrors.length > 0) assert.ok(joined.acceptor.states.includes('down'));
  return joined.acceptor.protocolErrors;
}

describe('a peer that makes protocol errors', () => {
  const tricks: readonly [string, Trick, RegExp][] = [
    ['data of a stream that was never opened', (link) => put(link, data, 2, 10), /data of stream 2, which is not open/],
    [
      'the end of a stream that was never opened',
      (link) => put(link, shut, 2),
      /kind 6 of stream 2, which is not open/,
    ],
    ['an OPENED that nobody asked for', (link) => put(link, opened, 1, 0, 10), /kind 3 of stream 1, which is not open/],
    ['a refusal that nobody asked for', (link) => put(link, refused, 1), /kind 4 of stream 1, which is not open/],
    ['an OPEN without addresses', (link) => put(link, open, 2, 8, 8192), /stream 2 is opened without its addresses/],
    ['an OPEN without credit', (link) => put(link, open, 2, 40), /stream 2 is opened without its addresses/],
    ['an OPEN with an id of ours', (link) => openOne(link, 3), /stream 3 is opened a second time/],
    [
      'a name that is used twice',
      (link) => {
        for (const id of [2, 2]) openOne(link, id);
      },
      /stream 2 is opened a second time/,
    ],
    [
      'an old name in a new coat',
      (link) => {
        for (const id of [2, 0x1_0002]) openOne(link, id);
      },
      /stream 65538 is opened a second time/,
    ],
    [
      'a port that is none',
      (link) => {
        new Uint32Array(link.outgoing.memory.buffer, link.outgoing.payloadOffset, 10).fill(0xffff_ffff);
        put(link, open, 2, OPEN_PAYLOAD_BYTES, 8192);
      },
      /stream 2 is opened to port 4294967295/,
    ],
    [
      'more data than was granted',
      (link) => {
        openOne(link, 2);
        for (let count = 0; count < 5; count++) put(link, data, 2, 2000);
      },
      /stream 2 sent more than it may/,
    ],
    [
      'data after the end',
      (link) => {
        openOne(link, 2);
        put(link, shut, 2);
        put(link, data, 2, 10);
      },
      /data of stream 2, which is not open|stream 2 sent more than it may/,
    ],
  ];
  for (const [name, trick, reason] of tricks) {
    test(`${name} is a protocol error`, async () => {
      const protocolErrors = await play(trick);
      assert.equal(protocolErrors.length, 1);
      assert.match(protocolErrors[0], reason);
    });
  }

  test('records that may have crossed with our own end are no protocol error', async () => {
    const protocolErrors = await play((link) => {
      put(link, credit, 2, 0, 5);
      put(link, returned, 2);
      put(link, reset, 2);
      put(link, reset, 1);
    });
    assert.deepEqual(protocolErrors, []);
  });

  test('a flood of OPENs is refused one by one', async () => {
    const protocolErrors = await play((link) => {
      for (let index = 0; index < 400; index++) openOne(link, index * 2);
    });
    assert.deepEqual(protocolErrors, []);
  });

  for (const position of [2000, 0xffff_ffff]) {
    test(`an index of ${position} is a protocol error`, async () => {
      await using joined = await Joined.up({ devices: ['soft-tcp'] });
      const { memory, outgoing } = joined.acceptor.sessions[0]?.link ?? assert.fail();
      storeRelease(
        new Uint32Array(memory.buffer, controlOffset(outgoing.number), 2),
        controlWords.readPosition,
        position,
      );
      joined.acceptor.wake();
      await joined.until('it is found out', () => joined.acceptor.protocolErrors.length > 0);
      assert.match(joined.acceptor.protocolErrors[0] ?? '', /its read position is past what was written/);
    });
  }

  test('a peer that overwrites records on their way to it is detected when those are sent again', async () => {
    await using joined = await Joined.up({ devices: ['soft-tcp'] });
    const [, server] = await joined.connect();
    const { outgoing, memory } = joined.acceptor.sessions[0]?.link ?? assert.fail();
    joined.dialer.isPaused = true;
    server.toSend = 5000;
    const before = outgoing.position;
    await joined.until('something is under way', () => outgoing.position > before + 10);
    // As a remote write could: our memory is the peer's to write, all of it.
    const words = new Uint32Array(memory.buffer);
    words[outgoing.offsetAt(before) / 4 + recordWords.slots] = 0;
    joined.breakOne(1);
    server.toSend = 7000;
    const isBroken = ({ body }: { body: object }): boolean => 'kind' in body && body.kind === 'broken';
    await joined.until('the break is noticed', () => joined.said.some(isBroken));
    // The peer hears of that before it reads.
    joined.dialer.sessions[0]?.hear(joined.said.find(isBroken)?.body ?? {});
    joined.dialer.isPaused = false;
    await joined.until('it is found out', () => joined.acceptor.protocolErrors.length > 0);
    assert.match(joined.acceptor.protocolErrors[0] ?? '', /overwritten records that were on their way/);
  });

  test('a region full of noise ends its own session at most', async () => {
    await using joined = await Joined.up({ devices: ['soft-tcp'] });
    joined.join({ devices: ['soft-tcp'] });
    await joined.untilUp();
    const { memory, options } = joined.acceptor.sessions[0]?.link ?? assert.fail();
    new Uint32Array(memory.buffer).fill(0x0505_0505);
    assert.equal(memory.sizeBytes >= regionBytes(options.geometry), true);
    joined.acceptor.wake();
    await joined.until('it is found out', () => joined.acceptor.protocolErrors.length > 0);
    const pair = await joined.connect(joined.dialer, 1);
    for (const program of pair) program.toSend = BYTES;
    await joined.until('the session beside it works', () => pair.every(({ received }) => received === BYTES));
  });
});
