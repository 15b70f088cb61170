import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type DirectoryPeer, type PeerDirectory, PeerList, type PeersListener } from './directory.ts';
import { EtcdDirectory } from './etcd-directory.ts';
import { mergeDirectories } from './merged-directory.ts';
import { StaticDirectory } from './static-directory.ts';

/** Stands for etcd. */
class Given implements PeerDirectory {
  readonly list = new PeerList();
  problem = '';
  closed = 0;

  get peers(): readonly DirectoryPeer[] {
    return this.list.peers;
  }

  onChange(listener: PeersListener): void {
    this.list.listen(listener);
  }

  async close(): Promise<void> {
    this.closed++;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

const peer = (name: string, host: string, source: 'config' | 'etcd' = 'etcd'): DirectoryPeer => ({
  name,
  host,
  port: 1,
  source,
});

describe('directories', () => {
  test('a node that others would not understand is not registered in etcd', () => {
    const start = (name: string, host: string, port: number, endpoints = ['http://127.0.0.1:1']) =>
      EtcdDirectory.start({ endpoints, prefix: '/m', leaseSeconds: 5, self: { name, host, port } });
    assert.throws(() => start('a', '10.0.0.1', 0), {
      message: /register a at 10\.0\.0\.1 port 0 in etcd: its port is not a number/,
    });
    assert.throws(() => start('a', '0.0.0.0', 1), /its host is not a host name/);
    assert.throws(() => start('a b', '10.0.0.1', 1), /not a node name/);
    assert.throws(() => start('a', '10.0.0.1', 1, []), { code: 'MILLRACE_ERR_USAGE', message: /no endpoints/ });
  });

  test('the peers of the config are sorted, and listeners hear of changes only', async () => {
    await using directory = new StaticDirectory([
      { name: 'c', host: 'x', port: 1 },
      { name: 'b', host: 'y', port: 2 },
    ]);
    const heard: string[] = [];
    directory.onChange((peers) => heard.push(peers.map(({ name }) => name).join()));
    assert.deepEqual(directory.peers[0], { name: 'b', host: 'y', port: 2, source: 'config' });
    directory.replace([...directory.peers].reverse());
    assert.deepEqual(heard, []);
    directory.replace([{ name: 'c', host: 'x', port: 1 }]);
    assert.deepEqual(heard, ['c']);
    await directory.close();
    directory.replace([]);
    assert.deepEqual(heard, ['c']);
  });

  test('of two with one name the config counts, whatever the order', async () => {
    const [config, etcd] = [new StaticDirectory([{ name: 'b', host: 'config', port: 1 }]), new Given()];
    const merged = [mergeDirectories(config, etcd), mergeDirectories(etcd, config)];
    etcd.list.replace([peer('b', 'etcd'), peer('c', 'etcd')]);
    for (const { peers } of merged) {
      assert.deepEqual(peers, [peer('b', 'config', 'config'), peer('c', 'etcd')]);
    }
    config.replace([]);
    for (const { peers } of merged) assert.deepEqual(peers, [peer('b', 'etcd'), peer('c', 'etcd')]);
  });

  test('merged ones have the problems of all, and close all', async () => {
    const [one, other] = [new Given(), new Given()];
    const merged = mergeDirectories(one, other);
    assert.equal(merged.problem, '');
    one.problem = 'away';
    other.problem = 'late';
    assert.equal(merged.problem, 'away; late');
    await merged.close();
    assert.deepEqual([one.closed, other.closed], [1, 1]);
  });
});
