// What lanes tell: errors that come again and again make one line, whoever causes them.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { subscribe } from '../status/index.ts';
import { hearLane } from './lane-news.ts';
import { throttled } from './report-error.ts';

test('a peer that breaks the protocol again and again, or lacks descriptors for, makes one line of each kind', () => {
  const heard: string[] = [];
  using _ = subscribe('error', ({ where, message, peer }) => heard.push(`${where} ${peer}: ${message}`));
  const lines = { ofPeers: throttled('channel'), ofLanes: throttled('lane') };
  const refused: string[] = [];
  const peers = { get: () => ({ refuse: (reason: string) => void refused.push(reason) }) };
  for (let times = 0; times < 1000; times++) {
    const news = [
      { kind: 'protocolError', peer: 'b', reason: 'a record of 0 bytes' },
      { kind: 'error', message: 'connect to 10.0.0.2:80 for a client of b: EMFILE; the client is reset' },
    ] as const;
    for (const one of news) hearLane(one, peers as never, lines);
  }
  assert.equal(refused.length, 1000, 'it is refused each time');
  assert.deepEqual(heard, [
    'channel b: peer b broke the protocol: a record of 0 bytes; its links and control connection are closed',
    'lane : connect to 10.0.0.2:80 for a client of b: EMFILE; the client is reset',
  ]);
});
