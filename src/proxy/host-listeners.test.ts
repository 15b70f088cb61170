// Who is told of which listeners.

import assert from 'node:assert/strict';
import { describe, mock, test } from 'node:test';
import type { ToLane } from '../lane/index.ts';
import { formatIpEndpoint, type IpEndpoint, type Listener, parseIpEndpoint } from '../steering/index.ts';
import { Acceptance } from './acceptance.ts';
import { HostListeners } from './host-listeners.ts';

const listener = (endpoint: string, ...commands: readonly string[]): Listener => ({
  endpoint: parseIpEndpoint(endpoint),
  netns: 1,
  commands: commands.length === 0 ? [''] : commands,
  hasLibrary: false,
});

class Told implements Disposable {
  readonly listeners: HostListeners;
  /** What was told, in order: `lanes b,c 10.0.0.1:80` or `peers`. */
  readonly news: string[] = [];
  /** What lanes were sent. */
  sent = '';
  /** What lanes know, list by list. */
  #lists: { readonly peers: readonly string[]; readonly servers: Set<string> }[] = [];
  #listenersFor: (peer: string) => readonly IpEndpoint[] = () => [];
  #libraryFor: (peer: string) => readonly IpEndpoint[] = () => [];

  constructor(lines?: readonly string[]) {
    this.listeners = new HostListeners(new Acceptance(lines), {
      lanes: {
        tellAll: (message: ToLane) => {
          this.sent += JSON.stringify(message);
          if (message.kind === 'listeners') {
            this.#lists = message.lists.map(({ peers, servers }) => {
              return { peers, servers: new Set(servers.map(({ endpoint }) => endpoint)) };
            });
            for (const list of this.#lists.keys()) this.#tell(list);
          } else if (message.kind === 'listenersChanged') {
            const servers = this.#lists[message.list]?.servers;
            for (const endpoint of message.removed) assert.ok(servers?.delete(endpoint));
            for (const { endpoint } of message.added) servers?.add(endpoint);
            this.#tell(message.list);
          }
        },
      },
      control: {
        setListeners: (listenersFor, libraryFor) => {
          this.#listenersFor = listenersFor;
          this.#libraryFor = libraryFor;
          this.news.push('peers');
        },
      },
    });
    this.listeners.setPeers(['b', 'c']);
    this.news.splice(0);
  }

  #tell(list: number): void {
    const { peers, servers } = this.#lists[list] ?? { peers: [], servers: [] };
    this.news.push(`lanes ${peers.join()} ${[...servers].join()}`);
  }

  announced(peer: string): string {
    return this.#listenersFor(peer).map(formatIpEndpoint).join();
  }

  listOf(peer: string): readonly IpEndpoint[] {
    return this.#listenersFor(peer);
  }

  withLibrary(peer: string): string {
    return this.#libraryFor(peer).map(formatIpEndpoint).join();
  }

  [Symbol.dispose](): void {
    this.listeners[Symbol.dispose]();
  }
}

describe('listeners of this host', () => {
  test('peers hear which programs have the library, of listeners that they may reach', () => {
    using told = new Told(['accept from b to any:80']);
    const [http, other] = [listener('10.0.0.1:80'), listener('10.0.0.1:81')];
    told.listeners.setListeners([http, { ...other, hasLibrary: true }]);
    assert.deepEqual([told.withLibrary('b'), told.withLibrary('c')], ['', '']);
    told.listeners.setListeners([{ ...http, hasLibrary: true }, other]);
    assert.deepEqual([told.withLibrary('b'), told.withLibrary('c')], ['10.0.0.1:80', '']);
    told.listeners.withdraw();
    assert.equal(told.withLibrary('b'), '');
  });

  test('without accept lines all peers hear of all, lanes first, and once as long as nothing changes', () => {
    using told = new Told();
    for (let scan = 0; scan < 3; scan++)
      told.listeners.setListeners([listener('10.0.0.1:80'), listener('10.0.0.1:81')]);
    assert.deepEqual(told.news, ['lanes b,c 10.0.0.1:80,10.0.0.1:81', 'peers']);
    assert.equal(told.announced('b'), '10.0.0.1:80,10.0.0.1:81');
    assert.equal(told.announced('nobody'), '', 'who is no peer reaches nothing');
    told.listeners.setPeers(['d']);
    assert.deepEqual(told.news.slice(2), ['lanes d 10.0.0.1:80,10.0.0.1:81', 'peers']);
    assert.equal(told.announced('b'), '');
  });

  test('peers that are decided alike are given the very same list, and lanes only what has changed', () => {
    using told = new Told(['accept from b', 'accept from c', 'accept from d to any:80']);
    told.listeners.setPeers(['b', 'c', 'd', 'e']);
    told.listeners.setListeners([listener('10.0.0.1:80'), listener('10.0.0.1:81')]);
    assert.equal(told.listOf('d'), told.listOf('d'));
    assert.notEqual(told.listOf('b'), told.listOf('d'));
    using alike = new Told();
    alike.listeners.setPeers(Array.from({ length: 1000 }, (_, index) => `p${index}`));
    alike.listeners.setListeners([listener('10.0.0.1:80')]);
    alike.sent = '';
    alike.listeners.setListeners([listener('10.0.0.1:81'), listener('10.0.0.1:80')]);
    assert.equal(alike.listOf('p0'), alike.listOf('p999'));
    const change = { kind: 'listenersChanged', list: 0, added: [{ endpoint: '10.0.0.1:81', netns: 1 }], removed: [] };
    assert.equal(alike.sent, JSON.stringify(change));
  });

  test('each peer hears of what it may reach', () => {
    using told = new Told(['deny from c to any:80', 'accept to any:80', 'accept from b to any:81']);
    told.listeners.setListeners(['10.0.0.1:80', '10.0.0.1:81', '10.0.0.1:82'].map((one) => listener(one)));
    assert.deepEqual(told.news, ['lanes b 10.0.0.1:80,10.0.0.1:81', 'peers']);
    assert.deepEqual([told.announced('b'), told.announced('c')], ['10.0.0.1:80,10.0.0.1:81', '']);
    for (const [peer, port, expected] of [
      ['c', 80, 'peer c is not accepted at 10.0.0.1:80: accept line 1 (deny from c to any:80)'],
      ['b', 81, 'peer b is accepted at 10.0.0.1:81: accept line 3 (accept from b to any:81)'],
      ['b', 83, 'nothing of this host listens at 10.0.0.1:83 for other hosts'],
    ] as const) {
      assert.equal(told.listeners.explain(peer, `10.0.0.1:${port}`), expected);
    }
  });

  test('of several processes at one endpoint, each must be accepted', () => {
    using told = new Told(['deny command sshd', 'accept from b command redis', 'accept from c']);
    assert.equal(told.listeners.needsCommands, true);
    told.listeners.setListeners([
      listener('10.0.0.1:1', 'redis'),
      listener('10.0.0.1:2', 'redis', 'sshd'),
      listener('10.0.0.1:3', 'redis', 'sh'),
      listener('10.0.0.1:4', 'redis', ''),
    ]);
    assert.deepEqual([told.announced('b'), told.announced('c')], ['10.0.0.1:1', '10.0.0.1:1,10.0.0.1:3']);
    assert.equal(
      told.listeners.explain('b', '10.0.0.1:3'),
      'peer b is not accepted at 10.0.0.1:3 (redis, sh): no accept line is about it',
    );
    assert.match(told.listeners.explain('b', '10.0.0.1:4'), /10\.0\.0\.1:4 \(redis, command not known\): .* line 1/);
    told.listeners.setListeners([listener('10.0.0.1:2', 'redis')]);
    assert.equal(told.announced('b'), '10.0.0.1:2', 'it is another process now');
  });

  test('after a reload peers are told at once, and lanes take what is on its way for a moment', () => {
    mock.timers.enable({ apis: ['setTimeout'] });
    try {
      using told = new Told();
      told.listeners.setListeners([listener('10.0.0.1:80'), listener('10.0.0.1:81')]);
      told.news.splice(0);
      told.listeners.setAcceptance(new Acceptance(['accept from b to any:80']));
      assert.deepEqual([told.announced('b'), told.announced('c')], ['10.0.0.1:80', '']);
      told.listeners.setListeners([listener('10.0.0.1:80'), listener('10.0.0.1:81'), listener('10.0.0.1:82')]);
      const before = '10.0.0.1:80,10.0.0.1:81';
      assert.deepEqual(told.news.splice(0), [
        `lanes b ${before}`,
        `lanes c ${before}`,
        'peers',
        `lanes b ${before},10.0.0.1:82`,
        `lanes c ${before},10.0.0.1:82`,
        'peers',
      ]);
      mock.timers.runAll();
      assert.deepEqual(told.news.splice(0), ['lanes b 10.0.0.1:80', 'lanes c ']);
    } finally {
      mock.timers.reset();
    }
  });

  test('a daemon that drains announces nothing any more, whatever comes', () => {
    using told = new Told();
    told.listeners.setListeners([listener('10.0.0.1:80')]);
    told.listeners.withdraw();
    told.listeners.setListeners([listener('10.0.0.1:80'), listener('10.0.0.1:81')]);
    assert.equal(told.announced('b'), '');
    assert.equal(told.news.at(-2), 'lanes b,c 10.0.0.1:80,10.0.0.1:81');
  });
});
