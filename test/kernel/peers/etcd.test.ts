// Tests of the peer directory with a real etcd on loopback: nodes that come, leave and die, and an
// etcd that does.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { EtcdDirectory, type EtcdDirectoryOptions } from '../../../src/peers/index.ts';
import { Etcd } from '../../../workbench/worlds/etcd.ts';

const WAIT_MS = 20_000;

/** A directory whose every event is looked at. */
class Node implements AsyncDisposable {
  readonly directory: EtcdDirectory;
  readonly errors: string[] = [];
  /** The names of the peers, after each change. */
  readonly seen: string[] = [];
  readonly #waiting = new Set<() => void>();

  constructor(etcd: Etcd, name: string, port: number, more: Partial<EtcdDirectoryOptions> = {}) {
    const look = (): void => {
      for (const one of this.#waiting) one();
    };
    this.directory = EtcdDirectory.start({
      endpoints: [etcd.endpoint],
      prefix: '/millrace',
      leaseSeconds: 5,
      self: { name, host: '127.0.0.1', port },
      onError: (message) => {
        this.errors.push(message);
        look();
      },
      onProblem: look,
      ...more,
    });
    this.directory.onChange(() => {
      this.seen.push(this.names);
      look();
    });
  }

  get names(): string {
    return this.directory.peers.map(({ name }) => name).join(' ');
  }

  get problem(): string {
    return this.directory.problem;
  }

  async until(what: string, isSo: () => boolean): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const look = (): void => {
      if (isSo()) resolve();
    };
    const timer = setTimeout(() => {
      const state = { peers: this.directory.peers, problem: this.problem, errors: this.errors };
      reject(new Error(`waited too long until ${what}: ${JSON.stringify(state)}`));
    }, WAIT_MS);
    this.#waiting.add(look);
    look();
    try {
      await promise;
    } finally {
      clearTimeout(timer);
      this.#waiting.delete(look);
    }
  }

  sees(names: string): Promise<void> {
    return this.until(`the peers are '${names}'`, () => this.names === names);
  }

  isFine(): Promise<void> {
    return this.until('all is well', () => this.problem === '');
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.directory.close();
  }
}

/** With an etcd of its own. */
function testWithEtcd(name: string, check: (etcd: Etcd) => Promise<void>): void {
  test(name, async () => {
    await using etcd = await Etcd.start();
    await check(etcd);
  });
}

// They wait for leases to end and for pauses between attempts: several at once take no longer.
describe('peers by etcd', { concurrency: 5 }, () => {
  testWithEtcd('junk that others wrote is ignored, each with a line', async (etcd) => {
    await etcd.put('/millrace/nodes/junk', 'no JSON');
    await etcd.put('/millrace/nodes/bytes', Buffer.from([0xff, 0xfe]));
    await etcd.put('/millrace/nodes/a b', '{"v":1,"host":"10.0.0.1","port":1}');
    await etcd.put('/millrace/nodes/deep/name', '{"v":1,"host":"10.0.0.1","port":1}');
    await etcd.put('/millrace/nodes/good', '{"v":1,"host":"10.0.0.2","port":4790,"later":true}');
    await etcd.put('/millrace/other', 'not ours');
    await etcd.put('/millrace2/nodes/x', 'not ours');
    await using a = new Node(etcd, 'a', 1);
    await a.sees('good');
    assert.equal(a.errors.length, 4, a.errors.join('\n'));
    // Junk that comes while watching; a good node that becomes junk is gone.
    await etcd.put('/millrace/nodes/later', '{"v":2}');
    await etcd.put('/millrace/nodes/good', '{"v":1,"host":"10.0.0.2","port":0}');
    await a.sees('');
    assert.match(a.errors.join('\n'), /ignored the etcd entry of node 'later': its version is not 1/);
    assert.match(a.errors.join('\n'), /ignored the etcd entry of node 'good': its port is not a number/);
  });

  testWithEtcd(
    'a node that follows another at the same place takes its entry over, and nobody sees it leave',
    async (etcd) => {
      await using b = new Node(etcd, 'b', 2);
      const a = new Node(etcd, 'a', 1);
      await Promise.all([a.sees('b'), b.sees('a')]);
      await a.directory.abandon();
      await using next = new Node(etcd, 'a', 1, { leaseSeconds: 6, known: a.directory.peers });
      assert.equal(next.names, 'b');
      await next.isFine();
      // Its own directory would have told by now if another had come and gone in between.
      const c = new Node(etcd, 'c', 3);
      await b.sees('a c');
      await next.sees('b c');
      await c.directory.close();
      await b.sees('a');
      assert.deepEqual(b.seen, ['a', 'a c', 'a']);
      assert.deepEqual(next.seen.slice(0, 1), ['b c'], 'who was known never vanished');
      assert.deepEqual([...next.errors, ...b.errors], []);
    },
  );

  testWithEtcd(
    'who was known before stays known while etcd is away, and for a while after it was missing there',
    async (etcd) => {
      const known = [{ name: 'x', host: '127.0.0.1', port: 9, source: 'etcd' }] as const;
      await etcd.stop();
      await using a = new Node(etcd, 'a', 1, { known });
      await a.until('etcd was missed', () => a.errors.length > 0);
      assert.equal(a.names, 'x');
      await etcd.resume();
      await a.isFine();
      assert.equal(a.names, 'x');
    },
  );

  testWithEtcd('two nodes see each other, and when one leaves', async (etcd) => {
    await using a = new Node(etcd, 'a', 1);
    await a.isFine();
    const b = new Node(etcd, 'b', 2);
    await Promise.all([a.sees('b'), b.sees('a')]);
    assert.deepEqual(a.directory.peers, [{ name: 'b', host: '127.0.0.1', port: 2, source: 'etcd' }]);
    await b.directory.close();
    await b.directory.close();
    await a.sees('');
    assert.deepEqual([...a.errors, ...b.errors], []);
  });

  testWithEtcd('a node that is killed is forgotten when its lease ends', async (etcd) => {
    await using a = new Node(etcd, 'a', 1);
    const script = join(import.meta.dirname, 'etcd-node.ts');
    const child = spawn(process.execPath, [script, etcd.endpoint, 'b', '2'], { stdio: ['ignore', 'pipe', 'inherit'] });
    const ended = once(child, 'exit');
    try {
      await a.sees('b');
    } finally {
      child.kill('SIGKILL');
      await ended;
    }
    await a.sees('');
  });

  testWithEtcd('a name that another address has is refused until it is free', async (etcd) => {
    const first = new Node(etcd, 'a', 1);
    await first.isFine();
    await using second = new Node(etcd, 'a', 2);
    await second.until('the name is taken', () =>
      second.problem.startsWith('the name a is taken in etcd by 127.0.0.1:1'),
    );
    await using other = new Node(etcd, 'b', 3);
    await other.sees('a');
    assert.equal(other.directory.peers[0]?.port, 1);
    // It knows its peers all the same.
    await second.sees('b');
    assert.equal(first.problem, '');
    await first.directory.close();
    await second.isFine();
    await other.until('the second has the name', () => other.directory.peers[0]?.port === 2);
  });

  testWithEtcd('a daemon that restarts takes over its entry, but not from one that lives', async (etcd) => {
    const before = new Node(etcd, 'a', 1);
    await before.isFine();
    await using after = new Node(etcd, 'a', 1);
    await after.isFine();
    // The first is still there and sees that it was displaced; it does not fight.
    await before.until('it was displaced', () => before.problem !== '');
    await before.directory.close();
    assert.ok(await etcd.has('/millrace/nodes/a'));
    assert.equal(after.problem, '');
  });

  testWithEtcd('an entry that somebody deletes or scribbles over is made anew or missed', async (etcd) => {
    await using a = new Node(etcd, 'a', 1);
    await using b = new Node(etcd, 'b', 2);
    await a.sees('b');
    await etcd.delete('/millrace/nodes/b');
    // Whether a sees it gone meanwhile depends on how etcd groups the two changes.
    await etcd.untilThere('/millrace/nodes/b');
    await a.sees('b');
    await etcd.put('/millrace/nodes/b', 'scribble');
    await b.until('it is told', () =>
      /by an invalid entry; remove it: etcdctl del \/millrace\/nodes\/b/.test(b.problem),
    );
    await etcd.delete('/millrace/nodes/b');
    await Promise.all([b.isFine(), a.sees('b')]);
  });

  testWithEtcd('etcd may restart: the peers stay known, and changes are seen again', async (etcd) => {
    await using a = new Node(etcd, 'a', 1);
    await using b = new Node(etcd, 'b', 2);
    await Promise.all([a.sees('b'), b.sees('a')]);
    await etcd.stop();
    await a.until('it is noticed', () => a.problem !== '');
    assert.equal(a.names, 'b');
    await etcd.resume();
    await Promise.all([a.isFine(), b.isFine()]);
    await using c = new Node(etcd, 'c', 3);
    await Promise.all([a.sees('b c'), b.sees('a c'), c.sees('a b')]);
    assert.deepEqual(a.seen, ['b', 'b c']);
  });

  testWithEtcd('etcd may lose its data: the nodes register anew, and nobody is missed meanwhile', async (etcd) => {
    const leaseSeconds = 4;
    await using a = new Node(etcd, 'a', 1, { leaseSeconds });
    await using b = new Node(etcd, 'b', 2, { leaseSeconds });
    const c = new Node(etcd, 'c', 3, { leaseSeconds });
    await Promise.all([a.sees('b c'), b.sees('a c'), c.sees('a b')]);
    await etcd.stop();
    // This one is not there any more when etcd comes back.
    await c.directory.close();
    etcd.loseData();
    await etcd.resume();
    await Promise.all([a.isFine(), b.isFine()]);
    assert.ok(await etcd.has('/millrace/nodes/a'));
    assert.ok(await etcd.has('/millrace/nodes/b'));
    await Promise.all([a.sees('b'), b.sees('a')]);
    assert.deepEqual(a.seen.slice(-2), ['b c', 'b']);
  });

  testWithEtcd('many changes while etcd compacts its history end in the same list', async (etcd) => {
    await using a = new Node(etcd, 'a', 1);
    await a.isFine();
    const entry = (port: number): string => JSON.stringify({ v: 1, host: '10.0.0.1', port });
    for (let round = 1; round <= 10; round++) {
      await Promise.all(
        Array.from({ length: 20 }, (_, index) => etcd.put(`/millrace/nodes/n${index}`, entry(round * 100 + index))),
      );
      if (round % 3 === 0) await etcd.compact();
    }
    await etcd.delete('/millrace/nodes/n0');
    await a.until('all have their last port', () => {
      const { peers } = a.directory;
      return peers.length === 19 && peers.every(({ name, port }) => port === 1000 + Number(name.slice(1)));
    });
    await using late = new Node(etcd, 'late', 2);
    await late.until('it sees the same', () => late.directory.peers.length === 20);
  });

  testWithEtcd('a member that is away is passed over', async (etcd) => {
    const endpoints = ['http://127.0.0.1:1', etcd.endpoint];
    await using a = new Node(etcd, 'a', 1, { endpoints });
    await a.isFine();
    assert.match(a.errors[0] ?? '', /^etcd http:\/\/127\.0\.0\.1:1: .*: ECONNREFUSED/);
    assert.equal(a.errors.length, 1);
  });

  testWithEtcd('a user and password are asked for, and a wrong one is told', async (etcd) => {
    await etcd.call('auth/user/add', { name: 'root', password: 'secret' });
    await etcd.call('auth/role/add', { name: 'root' });
    await etcd.call('auth/user/grant', { user: 'root', role: 'root' });
    await etcd.call('auth/enable', {});
    await using wrong = new Node(etcd, 'a', 1, { username: 'root', password: 'guess' });
    await wrong.until('it is told', () => /auth\/authenticate: .*invalid user ID or password/.test(wrong.problem));
    assert.doesNotMatch(wrong.errors.join(), /guess/);
    await using nobody = new Node(etcd, 'a', 1);
    await nobody.until('it is told', () => /etcdserver: /.test(nobody.problem));
    await using a = new Node(etcd, 'a', 1, { username: 'root', password: 'secret' });
    await a.isFine();
    // Tokens do not survive a restart.
    await etcd.stop();
    await a.until('it is noticed', () => a.problem !== '');
    await etcd.resume();
    await using b = new Node(etcd, 'b', 2, { username: 'root', password: 'secret' });
    await Promise.all([a.sees('b'), b.sees('a')]);
  });

  testWithEtcd('closing without etcd does not wait for it', async (etcd) => {
    await using a = new Node(etcd, 'a', 1);
    await a.isFine();
    await etcd.stop();
    const startMs = performance.now();
    await a.directory.close();
    assert.ok(performance.now() - startMs < 5000);
    const controller = new AbortController();
    const b = new Node(etcd, 'b', 2, { signal: controller.signal });
    controller.abort();
    await b.directory.close();
  });
});
