// Peers: their state follows from control connection and links, and only a ready one's listeners
// are announced.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { ToLane } from '../lane/index.ts';
import { type LinkState, subscribe } from '../status/index.ts';
import { formatIpEndpoint, type IpEndpoint, parseIpEndpoint } from '../steering/index.ts';
import { Announcements } from './announcements.ts';
import type { ControlPeer, PeerConnection } from './control/index.ts';
import type { Peer, PeerLanes } from './peer.ts';
import { phaseOf } from './peer-phase.ts';
import { PeerTable } from './peer-table.ts';

const place = (name: string, host: string): ControlPeer => ({ name, host, port: 7201, source: 'config' });
const endpoints = (...words: string[]) => words.map(parseIpEndpoint);
const helloOf = (incarnation: string) => ({
  name: 'b',
  incarnation,
  lanes: 2,
  wires: ['shm'],
  admission: 'packets' as const,
});

class FakeConnection implements PeerConnection {
  readonly isDialer = true;
  readonly isSecure = true;
  readonly roundTripMs = 1;
  readonly refusals: string[] = [];
  readonly sent: string[] = [];

  sendLink(link: number, body: object): boolean {
    this.sent.push(`${link} ${JSON.stringify(body)}`);
    return true;
  }

  refuse(reason: string): void {
    this.refusals.push(reason);
  }
}

/** Two lanes in the hands of a test. */
class FakeLanes implements PeerLanes {
  readonly count = 2;
  readonly told: string[] = [];
  /** By peer, the addresses that its clients may have. */
  readonly clients = new Map<string, readonly string[]>();
  #settled = Promise.withResolvers<void>();

  laneOf(link: number): number {
    return link % 2;
  }

  tell(lane: number, message: ToLane): void {
    const { kind, ...rest } = message;
    this.told.push(`${lane} ${kind} ${JSON.stringify(rest)}`);
  }

  tellAll(message: ToLane): void {
    if (message.kind === 'clients') this.clients.set(message.peer, message.hosts);
    else this.told.push(message.kind);
  }

  settled(): Promise<void> {
    return this.#settled.promise;
  }

  async settle(): Promise<void> {
    this.#settled.resolve();
    this.#settled = Promise.withResolvers<void>();
    await new Promise(setImmediate);
  }
}

/** A daemon called `a` whose peers are `b` and `c`, without anything below. */
class World implements Disposable {
  readonly lanes = new FakeLanes();
  readonly announced = new Set<string>();
  readonly errors: string[] = [];
  readonly events: string[] = [];
  /** Where the daemon is to ask whether packets get there, and no more. */
  readonly knocks: string[] = [];
  readonly table: PeerTable;
  readonly #subscription: Disposable;

  constructor() {
    const sink = {
      announce: (endpoint: ReturnType<typeof parseIpEndpoint>) => {
        const key = formatIpEndpoint(endpoint);
        assert.ok(!this.announced.has(key), `${key} is announced once`);
        this.announced.add(key);
        return true;
      },
      withdraw: (endpoint: ReturnType<typeof parseIpEndpoint>) => {
        assert.ok(this.announced.delete(formatIpEndpoint(endpoint)));
      },
    };
    const knocks = {
      announced: (to: IpEndpoint) => void this.knocks.push(`+${formatIpEndpoint(to)}`),
      withdrawn: (to: IpEndpoint) => void this.knocks.push(`-${formatIpEndpoint(to)}`),
      asked: () => undefined,
    };
    const parts = { lanes: this.lanes, announcements: new Announcements(sink), knocks };
    this.table = new PeerTable('a', parts, (message) => void this.errors.push(message), ['10.0.0.1']);
    this.table.replace([place('b', '10.0.0.2'), place('c', '10.0.0.3')]);
    this.#subscription = subscribe('peer', ({ peer, state, reason, address }) => {
      this.events.push(`${peer} at ${address} ${state}${reason === '' ? '' : `: ${reason}`}`);
    });
  }

  peer(name: string): Peer {
    const peer = this.table.get(name);
    assert.ok(peer !== undefined);
    return peer;
  }

  connect(name: string, incarnation = '1'): FakeConnection {
    const connection = new FakeConnection();
    this.peer(name).connected(connection, helloOf(incarnation));
    return connection;
  }

  setLinks(name: string, ...states: readonly LinkState[]): void {
    for (const [link, state] of states.entries()) {
      this.peer(name).linkChanged(link, {
        state,
        reason: state === 'up' ? '' : `link ${link} is ${state}`,
        wire: 'shm',
      });
    }
  }

  stateOf(name: string): string {
    const { state, reason } = this.peer(name).status([], false);
    return reason === '' ? state : `${state}: ${reason}`;
  }

  get kernel(): string {
    return [...this.announced].sort().join(' ');
  }

  [Symbol.dispose](): void {
    this.#subscription[Symbol.dispose]();
    this.table[Symbol.dispose]();
  }
}

test('a phase is ready while the control connection is up and every link is, or can be made', () => {
  const states: readonly LinkState[] = ['down', 'connecting', 'recovering', 'up', 'idle'];
  const up = { kind: 'up', connection: new FakeConnection() } as const;
  for (const one of states) {
    for (const other of states) {
      const links = [one, other].map((state) => ({ state, reason: state }));
      for (const kind of ['waiting', 'down'] as const) {
        assert.deepEqual(phaseOf({ kind, reason: 'why' }, links), { kind, reason: 'why' });
      }
      const { kind } = phaseOf(up, links);
      const pair = [one, other];
      const expected = pair.includes('recovering') ? 'recovering' : pair.includes('down') ? 'linking' : 'ready';
      assert.equal(kind, expected, pair.join());
    }
  }
  assert.equal(phaseOf(up, []).kind, 'linking', 'a peer without links cannot carry');
});

describe('a peer', () => {
  test('goes from waiting to up, down and up again, and events tell of it', () => {
    using world = new World();
    world.table.replace([place('0', '10.0.0.9'), place('b', '10.0.0.2')]);
    assert.equal(world.stateOf('0'), 'connecting: waiting for 0 to connect');
    assert.equal(world.stateOf('b'), 'connecting: not connected yet');
    const peer = world.peer('b');
    peer.dialFailed('ECONNREFUSED');
    assert.equal(world.stateOf('b'), 'down: ECONNREFUSED');
    assert.equal(peer.whyNotAnnounced(), 'peer b is down: ECONNREFUSED');
    assert.deepEqual(world.events, [], 'a peer that could not be reached so far is no news');
    world.connect('b');
    peer.dialFailed('late');
    assert.equal(world.stateOf('b'), 'up', 'its links are made when they are used');
    world.setLinks('b', 'connecting', 'up');
    assert.equal(world.stateOf('b'), 'up');
    world.setLinks('b', 'down', 'up');
    assert.equal(world.stateOf('b'), 'connecting: link 0 is down', 'one could not be made');
    world.setLinks('b', 'up', 'up');
    assert.equal(world.stateOf('b'), 'up');
    assert.equal(peer.whyNotAnnounced(), 'peer b does not listen there, or does not accept this host');
    world.setLinks('b', 'up', 'recovering');
    assert.equal(world.stateOf('b'), 'recovering: link 1 is recovering');
    world.setLinks('b', 'up', 'up');
    peer.disconnected('bye: shutdown');
    assert.equal(world.stateOf('b'), 'down: bye: shutdown');
    world.connect('b', '1');
    assert.equal(world.stateOf('b'), 'up', 'the same incarnation still has its links');
    peer.disconnected('lost');
    world.setLinks('b', 'down', 'up');
    world.connect('b', '2');
    assert.equal(world.stateOf('b'), 'up', 'of another incarnation nothing is known');
    assert.deepEqual(
      world.events,
      [
        'up',
        'connecting: link 0 is down',
        'up',
        'recovering: link 1 is recovering',
        'up',
        'down: bye: shutdown',
        'up',
        'down: lost',
        'up',
      ].map((words) => `b at 10.0.0.2:7201 ${words}`),
    );
  });

  test('has its links told to the lane of each, and messages go between the two', () => {
    using world = new World();
    const peer = world.peer('b');
    peer.sendLink(0, { early: true });
    peer.refuse('early');
    const connection = world.connect('b');
    assert.deepEqual(world.lanes.told.splice(0), [
      '0 peerUp {"peer":"b","isDialer":true,"isSame":false,"links":[0]}',
      '1 peerUp {"peer":"b","isDialer":true,"isSame":false,"links":[1]}',
    ]);
    peer.sendLink(1, { qp: 17 });
    peer.hearLink(3, { qp: 18 });
    peer.refuse('index past the ring');
    assert.deepEqual(connection.sent, ['1 {"qp":17}']);
    assert.deepEqual(connection.refusals, ['index past the ring']);
    assert.deepEqual(world.lanes.told, ['1 link {"peer":"b","link":3,"body":{"qp":18}}']);
    const status = peer.status([], false);
    assert.deepEqual([status.isSecure, status.address, status.source], [true, '10.0.0.2:7201', 'config']);
  });

  test('has its listeners announced only while it is ready and all lanes have heard', async () => {
    using world = new World();
    const peer = world.peer('b');
    world.connect('b');
    world.table.listenersChanged('b', endpoints('10.0.0.2:80', '10.0.0.2:81'), []);
    assert.equal(world.kernel, '', 'the lanes have not heard');
    await world.lanes.settle();
    assert.equal(world.kernel, '10.0.0.2:80 10.0.0.2:81');
    assert.equal(peer.status([], false).listeners, 2);
    world.setLinks('b', 'connecting', 'idle');
    assert.equal(world.kernel, '10.0.0.2:80 10.0.0.2:81', 'it is made because it is used');
    world.setLinks('b', 'down');
    assert.equal(world.kernel, '', 'a link cannot be made');
    world.setLinks('b', 'recovering');
    assert.equal(world.kernel, '', 'a link recovers');
    world.table.listenersChanged('b', endpoints('10.0.0.2:82'), endpoints('10.0.0.2:80'));
    await world.lanes.settle();
    assert.equal(world.kernel, '');
    world.setLinks('b', 'up');
    assert.equal(world.kernel, '10.0.0.2:81 10.0.0.2:82');
    world.table.listenersChanged('b', [], endpoints('10.0.0.2:81', '10.0.0.2:82'));
    peer.disconnected('lost');
    assert.equal(world.kernel, '');
  });

  test('that withdraws a listener before the lanes have heard of it has it not announced', async () => {
    using world = new World();
    world.connect('b');
    world.setLinks('b', 'up', 'up');
    const [one] = [endpoints('10.0.0.2:80')];
    world.table.listenersChanged('b', one, []);
    world.table.listenersChanged('b', [], one);
    await world.lanes.settle();
    assert.equal(world.kernel, '');
    world.table.listenersChanged('b', one, []);
    world.table.listenersChanged('b', [], one);
    world.table.listenersChanged('b', one, []);
    await world.lanes.settle();
    assert.equal(world.kernel, '10.0.0.2:80');
  });

  test('may announce addresses of its own only, and one that two have is the first one’s until it lets it go', async () => {
    using world = new World();
    for (const name of ['b', 'c']) {
      world.connect(name);
      world.setLinks(name, 'up', 'up');
      world.table.addressesChanged(name, ['10.0.0.3', '10.1.0.1', `fd00::${name}`]);
      world.table.listenersChanged(name, endpoints('10.0.0.3:80', '10.1.0.1:80', `[fd00::${name}]:80`), []);
    }
    await world.lanes.settle();
    assert.deepEqual(world.errors, [
      'peer b announced 10.0.0.3, which is the address of peer c; ignored',
      'peer c announced 10.1.0.1, which is the address of peer b; ignored',
    ]);
    assert.equal(world.kernel, '10.0.0.3:80 10.1.0.1:80 [fd00::b]:80 [fd00::c]:80');
    world.peer('b').disconnected('lost');
    assert.equal(world.kernel, '10.0.0.3:80 [fd00::c]:80');
    assert.equal(world.table.whyNotAnnounced('10.1.0.1:80'), 'peer b is down: lost');
    world.table.addressesChanged('b', ['fd00::b']);
    await world.lanes.settle();
    assert.equal(world.kernel, '10.0.0.3:80 10.1.0.1:80 [fd00::c]:80', 'now it is c’s');
    assert.equal(world.table.whyNotAnnounced('10.0.0.2:80'), 'peer b is down: lost');
    assert.equal(world.table.whyNotAnnounced('10.7.0.2:80'), '');
  });

  test('may not announce an address of this host, or one that means another host to each', async () => {
    using world = new World();
    world.connect('b');
    world.setLinks('b', 'up', 'up');
    const odd = ['10.0.0.1', '127.0.0.1', '0.0.0.0'];
    world.table.addressesChanged('b', [...odd, '10.0.0.7']);
    const all = [...odd, '10.0.0.2', '10.0.0.7', '10.0.0.8'];
    world.table.listenersChanged('b', endpoints(...all.map((host) => `${host}:80`)), []);
    await world.lanes.settle();
    assert.deepEqual(
      world.errors,
      [...odd, '10.0.0.8'].map((host) => `peer b announced ${host}, which is not an address of another host; ignored`),
    );
    assert.equal(world.kernel, '10.0.0.2:80 10.0.0.7:80');
    world.table.setOwnAddresses(['10.0.0.7']);
    assert.equal(world.kernel, '10.0.0.2:80', 'it is this host’s now');
    assert.deepEqual(world.lanes.clients.get('b'), ['10.0.0.1', '10.0.0.2']);
  });

  test('a change of its listeners concerns only what has changed, and packets count as an announcement', async () => {
    using world = new World();
    world.connect('b');
    world.setLinks('b', 'up', 'up');
    const many = Array.from({ length: 1000 }, (_, index) => `10.0.0.2:${index + 1}`);
    world.table.listenersChanged('b', endpoints(...many), []);
    await world.lanes.settle();
    assert.equal(world.peer('b').status([], false).listeners, 1000);
    world.knocks.length = 0;
    world.lanes.told.length = 0;
    world.table.listenersChanged('b', endpoints('10.0.0.2:2000'), endpoints('10.0.0.2:1'));
    await world.lanes.settle();
    assert.deepEqual(world.knocks, ['-10.0.0.2:1', '+10.0.0.2:2000']);
    assert.deepEqual(world.lanes.told, ['routes']);
    assert.equal(world.peer('b').status([], false).listeners, 1000);
    const [there] = endpoints('10.0.0.2:3000');
    assert.ok(there !== undefined);
    world.table.reached(there, 'b');
    await world.lanes.settle();
    assert.ok(world.announced.has('10.0.0.2:3000'));
    world.table.reached(there, 'c');
    assert.ok(!world.announced.has('10.0.0.2:3000'), 'it is not an address of c');
    world.table.reached(there, 'b');
    world.table.reached(there, undefined);
    await world.lanes.settle();
    assert.ok(!world.announced.has('10.0.0.2:3000'));
    assert.deepEqual(world.knocks.length, 2, 'what was reached is not asked about again');
  });

  test('that is removed leaves nothing behind, whatever was under way', async () => {
    using world = new World();
    world.connect('b');
    world.setLinks('b', 'up', 'up');
    world.table.listenersChanged('b', endpoints('10.0.0.2:80'), []);
    await world.lanes.settle();
    world.table.listenersChanged('b', endpoints('10.0.0.2:81'), []);
    world.lanes.told.length = 0;
    world.table.replace([place('c', '10.0.0.3')]);
    await world.lanes.settle();
    assert.equal(world.kernel, '');
    assert.deepEqual(world.lanes.told, ['routes', 'peerGone']);
    assert.equal(world.table.get('b'), undefined);
    assert.equal(world.events.at(-1), 'b at 10.0.0.2:7201 down: it is no peer any more');
    world.table.listenersChanged('b', endpoints('10.0.0.2:82'), []);
    assert.equal(world.table.all.length, 1);
  });
});
