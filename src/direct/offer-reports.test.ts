// What people are told of offers, and the events of connections that become direct.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type ConnectionEvent, subscribe } from '../status/index.ts';
import { accepted, connected } from './fixtures/ends.ts';
import { exchange, MeshHost, type PlayedProgram } from './fixtures/mesh-host.ts';
import type { OfferReport } from './offer-reports.ts';

const reports = (host: MeshHost, ...programs: readonly PlayedProgram[]): readonly OfferReport[] =>
  host.promotions.reports(programs.map(({ program }) => program));

function heard(undo: DisposableStack): ConnectionEvent[] {
  const events: ConnectionEvent[] = [];
  undo.use(subscribe('connection', (event) => events.push(event)));
  return events;
}

describe('offers', () => {
  test('of two programs of one host: waiting, direct, leaving, gone', () => {
    using undo = new DisposableStack();
    const events = heard(undo);
    const host = undo.use(new MeshHost('a'));
    const [p, q] = [host.program(), host.program()];
    host.offer(p, 1, connected(5, 7));
    assert.deepEqual(
      reports(host, p).map(({ state, pid, remoteHost, promotedMs }) => [state, pid, remoteHost, promotedMs]),
      [['waiting', process.pid, '10.0.0.9', 0]],
    );
    host.offer(q, 1, accepted(5, 7));
    const both = reports(host, p, q);
    assert.deepEqual(
      both.map(({ state, direction, peer, key }) => [state, direction, peer, key]),
      [
        ['direct', 'out', '', ''],
        ['direct', 'in', '', ''],
      ],
    );
    assert.match(both[0]?.other ?? '', new RegExp(`\\(${process.pid}\\)$`));
    host.promotions.withdraw(p.program, 1);
    assert.deepEqual(
      reports(host, p, q).map(({ state }) => state),
      ['leaving'],
    );
    host.promotions.withdraw(q.program, 1);
    assert.deepEqual(reports(host, p, q), []);
    assert.deepEqual(
      events.map(({ what, direction, mode, peer, pid, bytesIn }) => [what, direction, mode, peer, pid, bytesIn]),
      [
        ['promoted', 'in', 'direct', '', process.pid, null],
        ['promoted', 'out', 'direct', '', process.pid, null],
        ['left', 'out', 'direct', '', process.pid, null],
        ['left', 'in', 'direct', '', process.pid, null],
      ],
    );
  });

  test('of programs of two hosts have the peer, the key and the direction', async () => {
    using undo = new DisposableStack();
    const events = heard(undo);
    const a = undo.use(new MeshHost('a', { peersFor: () => ['b'] }));
    const b = undo.use(new MeshHost('b', { peersFor: () => ['a'] }));
    a.peerUp('b');
    b.peerUp('a');
    const [p, q] = [a.program(), b.program()];
    a.offer(p, 1, connected(5, 7));
    b.offer(q, 1, accepted(5, 7));
    await exchange(a, b);
    const [[one], [other]] = [reports(a, p), reports(b, q)];
    assert.deepEqual([one?.state, one?.direction, one?.peer], ['direct', 'out', 'b']);
    assert.deepEqual([other?.state, other?.direction, other?.peer], ['direct', 'in', 'a']);
    assert.match(one?.key ?? '', /^[0-9a-f]{32}$/);
    assert.equal(one?.key, other?.key);
    a.promotions.end(p.program);
    assert.deepEqual(
      events.map(({ what, peer, wire }) => [what, peer, wire]),
      [
        ['promoted', 'b', 'shm'],
        ['promoted', 'a', 'shm'],
        ['left', 'b', 'shm'],
      ],
    );
  });

  test('that are declined are kept for a while, with the reason', () => {
    using undo = new DisposableStack();
    const host = undo.use(new MeshHost('a', { places: 0 }));
    const [p, q] = [host.program(), host.program()];
    const reasons = (): readonly string[] => reports(host).map(({ state, reason }) => `${state}: ${reason}`);
    host.offer(p, 1, connected(5, 7));
    host.offer(p, 2, accepted(5, 7));
    assert.deepEqual(reasons(), Array(2).fill('declined: both ends are in one program'));
    host.offer(p, 1, connected(5, 7));
    host.offer(q, 2, connected(5, 7));
    assert.match(reasons()[2] ?? '', /^declined: it was offered before/);
    host.offer(q, 2, accepted(5, 7));
    assert.match(reasons()[4] ?? '', /^declined: there is no memory left for rings \(direct\.memoryBytes/);
    host.promotions.offer(p.program, 9, []);
    host.promotions.decide();
    assert.match(reasons()[5] ?? '', /^declined: its program, or the programs of its user/);
    for (let number = 0; number < 600; number++) {
      host.promotions.offer(p.program, number, []);
      host.promotions.decide();
    }
    assert.equal(reasons().length, 256);
  });
});
