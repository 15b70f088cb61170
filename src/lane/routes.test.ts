// Routes: peers that announced a server, in the order in which they did.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ip } from '../native/index.ts';
import { announcedEndpoint, Routes } from './routes.ts';

describe('routes', () => {
  const server = ip('10.0.0.2', 6379);
  const endpoint = announcedEndpoint(server);

  test('lead nowhere that nobody announced', () => {
    const routes = new Routes();
    assert.deepEqual(routes.peersOf(server), []);
    routes.change('b', [], [endpoint]);
    assert.deepEqual(routes.peersOf(server), []);
  });

  test('have the first peer that announced a server first, and each peer once', () => {
    const routes = new Routes();
    routes.change('b', [endpoint], []);
    routes.change('c', [endpoint, announcedEndpoint(ip('10.0.0.2', 80))], []);
    assert.deepEqual(routes.peersOf(server), ['b', 'c']);
    assert.deepEqual(routes.peersOf(ip('10.0.0.2', 80)), ['c']);
    routes.change('c', [endpoint], []);
    assert.deepEqual(routes.peersOf(server), ['b', 'c']);
  });

  test('forget a peer that takes an announcement back, and go on with the others', () => {
    const routes = new Routes();
    for (const peer of ['b', 'c']) routes.change(peer, [endpoint], []);
    routes.change('b', [], [endpoint]);
    assert.deepEqual(routes.peersOf(server), ['c']);
    routes.change('b', [endpoint], []);
    assert.deepEqual(routes.peersOf(server), ['c', 'b']);
    for (const peer of ['b', 'c']) routes.change(peer, [], [endpoint]);
    assert.deepEqual(routes.peersOf(server), []);
  });
});
