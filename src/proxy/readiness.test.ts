// A daemon's readiness: told when it changes, and not by a daemon that ends.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { DirectoryPeer } from '../peers/index.ts';
import { subscribe } from '../status/events.ts';
import { Readiness } from './readiness.ts';

const peer: DirectoryPeer = { name: 'b', host: '10.0.0.2', port: 7201, source: 'etcd' };

test('a daemon that is not ready any more says why, once, and when it is again', () => {
  const heard: string[] = [];
  using _ = subscribe('daemon', ({ what, node, instance, detail }) =>
    heard.push([what, node, instance, detail].join()),
  );
  const directory = { problem: 'etcd was not reached yet', peers: [] as DirectoryPeer[] };
  const problems: string[] = [];
  const readiness = new Readiness(directory, () => problems, { node: 'a', instance: 'one' });
  readiness.check();
  assert.deepEqual(readiness.notReady, ['it is starting']);
  assert.deepEqual(heard, [], 'it was never ready');
  directory.problem = '';
  readiness.begin();
  readiness.check();
  assert.deepEqual(readiness.notReady, []);
  directory.problem = 'etcd is away';
  readiness.check();
  readiness.check();
  assert.deepEqual(readiness.notReady, ['etcd is away']);
  directory.peers = [peer];
  readiness.check();
  assert.deepEqual(readiness.notReady, [], 'peers that are known can be carried to');
  problems.push('lane 0 is stuck');
  readiness.check();
  assert.deepEqual(readiness.notReady, ['lane 0 is stuck']);
  problems.pop();
  readiness.check();
  directory.peers = [];
  readiness.end();
  readiness.check();
  assert.deepEqual(readiness.notReady, ['it is draining']);
  assert.deepEqual(heard, [
    'ready,a,one,',
    'not-ready,a,one,etcd is away',
    'ready,a,one,',
    'not-ready,a,one,lane 0 is stuck',
    'ready,a,one,',
  ]);
});

test('a daemon that starts without its peers says so right after it is ready', () => {
  const heard: string[] = [];
  using _ = subscribe('daemon', ({ what, detail }) => heard.push(`${what}:${detail}`));
  const directory = { problem: 'etcd was not reached yet', peers: [] };
  new Readiness(directory, () => [], { node: 'a', instance: 'one' }).begin();
  assert.deepEqual(heard, ['ready:', 'not-ready:etcd was not reached yet']);
});
