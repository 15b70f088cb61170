// The peers and links that direct connections between hosts may use.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { DirectWord } from '../direct/index.ts';
import { Announcements } from './announcements.ts';
import type { PeerConnection } from './control/index.ts';
import { DirectMesh } from './direct-mesh.ts';
import type { PeerLanes } from './peer.ts';
import { PeerTable } from './peer-table.ts';

const lanes: PeerLanes = {
  count: 2,
  laneOf: (link) => link % 2,
  tell: () => {},
  tellAll: () => {},
  settled: async () => {},
};
const connection: PeerConnection = {
  isDialer: true,
  isSecure: true,
  roundTripMs: 1,
  sendLink: () => true,
  refuse: () => {},
};

function makeTable(among = lanes): PeerTable {
  const announcements = new Announcements({ announce: () => true, withdraw: () => {} });
  const knocks = { announced: () => {}, withdrawn: () => {}, asked: async () => {} };
  const table = new PeerTable('a', { lanes: among, announcements, knocks }, () => {}, ['10.0.0.1', 'fd00::1']);
  const places = ['b', 'c'].map((name, index) => ({ name, host: `10.0.0.${index + 2}`, port: 1, source: 'config' }));
  table.replace(places as Parameters<PeerTable['replace']>[0]);
  return table;
}

function makeMesh(table: PeerTable, told: string[] = []): DirectMesh {
  const control = { tellDirect: (peer: string, { kind }: DirectWord) => void told.push(`${peer} ${kind}`) };
  return new DirectMesh({ name: 'a', peers: table, lanes, control });
}

test('the owner of an address may have the end that is known by it, and anybody where nobody owns it', () => {
  using table = makeTable();
  const mesh = makeMesh(table);
  table.addressesChanged('c', ['10.0.0.3', '10.88.0.7', 'fd00::3']);
  const expected: Record<string, readonly string[]> = {
    '10.0.0.2': ['b'],
    '::ffff:10.0.0.2': ['b'],
    '10.88.0.7': ['c'],
    'fd00:0::3': ['c'],
    // Through NAT, or by an address that means something on one link only.
    '192.0.2.1': ['b', 'c'],
    'fe80::1': ['b', 'c'],
    // Never beyond this host.
    '127.0.0.1': [],
    '127.8.8.8': [],
    '::1': [],
    '::ffff:127.0.0.1': [],
    '10.0.0.1': [],
    '::ffff:10.0.0.1': [],
    'fd00::1': [],
    '': [],
  };
  for (const [host, peers] of Object.entries(expected)) assert.deepEqual(mesh.peersFor(host), peers, host);
});

test('links take turns; one that is not up is made, and those that are serve meanwhile', () => {
  const wanted: number[] = [];
  const tell: PeerLanes['tell'] = (_, message) => void (message.kind === 'want' && wanted.push(message.link));
  using table = makeTable({ ...lanes, tell });
  const mesh = makeMesh(table);
  assert.equal(mesh.nextLink('b'), undefined);
  assert.equal(mesh.nextLink('nobody'), undefined);
  const peer = table.get('b');
  peer?.connected(connection, { name: 'b', incarnation: '1', lanes: 4, wires: [], admission: 'peers' });
  assert.equal(mesh.nextLink('b'), undefined);
  assert.deepEqual(wanted.splice(0), [0]);
  for (const link of [1, 3]) peer?.linkChanged(link, { state: 'up', reason: '', wire: 'shm' });
  assert.deepEqual(
    [0, 1, 2, 3].map((link) => mesh.isLinkUp('b', link)),
    [false, true, false, true],
  );
  assert.equal(mesh.isLinkUp('c', 1), false);
  const turns = Array.from({ length: 8 }, () => mesh.nextLink('b'));
  assert.deepEqual(new Set(turns), new Set([1, 3]));
  assert.deepEqual(new Set(wanted.splice(0)), new Set([0, 2]));
  for (const link of [0, 2]) peer?.linkChanged(link, { state: 'up', reason: '', wire: 'shm' });
  const all = Array.from({ length: 4 }, () => mesh.nextLink('b'));
  assert.deepEqual([new Set(all), wanted], [new Set([0, 1, 2, 3]), []]);
  for (const link of [0, 2, 3]) peer?.linkChanged(link, { state: 'recovering', reason: 'broken', wire: 'shm' });
  assert.deepEqual([mesh.nextLink('b'), mesh.nextLink('b')], [1, 1]);
});

test('a word goes to its peer', () => {
  using table = makeTable();
  const told: string[] = [];
  makeMesh(table, told).tell('b', { kind: 'directGone', key: '' });
  assert.deepEqual(told, ['b directGone']);
});
