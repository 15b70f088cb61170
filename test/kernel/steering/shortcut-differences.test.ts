// Pins where sockets that take the shortcut differ from TCP: docs/steering-shortcut.md has the same
// table.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { ShortcutWorld } from './shortcut/shortcut-world.ts';

const skip = process.getuid?.() !== 0 ? 'needs root' : false;

interface Difference {
  readonly name: string;
  readonly words: readonly string[];
  readonly tcp: unknown;
  readonly shortcut: unknown;
  readonly tries?: number;
}

const differences: readonly Difference[] = [
  {
    name: 'MSG_WAITALL returns what there is',
    words: ['waitall'],
    tcp: { received: 200 },
    shortcut: { received: 100 },
  },
  {
    name: 'SO_RCVLOWAT is not kept for what was redirected before it was set',
    words: ['lowat', 'after'],
    tcp: { isReadableBelow: false, isReadableAt: true },
    shortcut: { isReadableBelow: true, isReadableAt: true },
  },
  {
    name: 'splice() from the socket finds nothing, though the socket is readable',
    words: ['splice'],
    tcp: { isReadable: true, spliced: 10, error: '' },
    shortcut: { isReadable: true, spliced: -1, error: 'EAGAIN' },
  },
  {
    name: 'MSG_ZEROCOPY never completes when SO_ZEROCOPY was set after the connection was made',
    words: ['zerocopy', 'after'],
    tcp: { sent: 65_536, isReceived: true, isCompleted: true },
    shortcut: { sent: 65_536, isReceived: true, isCompleted: false },
  },
  {
    name: 'TCP_INFO does not count what was redirected',
    words: ['info'],
    tcp: { bytesReceived: 1000 },
    shortcut: { bytesReceived: 0 },
  },
  {
    name: 'urgent data is ordinary data',
    words: ['urgent'],
    tcp: { isUrgent: true, others: 'abcd' },
    shortcut: { isUrgent: false, others: 'b!cd' },
  },
  {
    name: 'a recv() that waits when the peer resets says EAGAIN first',
    words: ['blocked-reset'],
    tcp: { first: 'ECONNRESET', second: '' },
    shortcut: { first: 'EAGAIN', second: 'ECONNRESET' },
  },
  {
    name: 'a recv() that waits says EAGAIN when there is room again for a send that found none',
    words: ['full-send'],
    tcp: { received: 1, isSpurious: false },
    shortcut: { received: 1, isSpurious: true },
  },
  {
    name: 'closing a socket with unread bytes ends the connection without a reset',
    words: ['unread-close'],
    tcp: { received: -1, error: 'ECONNRESET' },
    shortcut: { received: 0, error: '' },
  },
  {
    name: 'an edge-triggered reader that takes a short read for the end of what there is may wait for ever',
    words: ['short-read'],
    tcp: { isStuck: false },
    shortcut: { isStuck: true },
    // Its writer must be far ahead when it begins, which a busy machine does not always grant.
    tries: 5,
  },
];

const equalities: readonly (readonly string[])[] = [
  ['lowat', 'before'],
  ['zerocopy', 'before'],
  ['fionread'],
  ['reset'],
];

describe('sockets that take the shortcut', { skip }, () => {
  let world: ShortcutWorld;
  before(async () => {
    world = await ShortcutWorld.create();
  });
  after(() => world[Symbol.asyncDispose]());

  for (const { name, words, tcp, shortcut, tries = 1 } of differences) {
    test(name, async () => {
      assert.deepEqual(await world.plainly(...words), tcp);
      let { said } = await world.take(...words);
      for (let done = 1; done < tries && !isDeepStrictEqual(said, shortcut); done++) {
        ({ said } = await world.take(...words));
      }
      assert.deepEqual(said, shortcut);
    });
  }

  for (const words of equalities) {
    test(`do the same as TCP: ${words.join(', ')}`, async () => {
      const { said } = await world.take(...words);
      assert.deepEqual(said, await world.plainly(...words));
    });
  }
});
