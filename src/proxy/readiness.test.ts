// A daemon's readiness: told when it changes, and not by a daemon that ends.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { subscribe } from '../status/events.ts';
import { Readiness } from './readiness.ts';

test('a daemon that is not ready any more says why, once, and when it is again', () => {
  const heard: string[] = [];
  using _ = subscribe('daemon', ({ what, node, instance, detail }) =>
    heard.push([what, node, instance, detail].join()),
  );
  const daemon = { notReady: ['it is starting'] };
  const readiness = new Readiness(daemon, 'a', 'one');
  readiness.look();
  assert.deepEqual(heard, [], 'it was never ready');
  daemon.notReady = [];
  readiness.begin();
  readiness.look();
  daemon.notReady = ['etcd is away', 'and more'];
  readiness.look();
  daemon.notReady = ['etcd is away'];
  readiness.look();
  daemon.notReady = [];
  readiness.look();
  daemon.notReady = ['it is draining'];
  readiness.end();
  readiness.look();
  assert.deepEqual(heard, ['ready,a,one,', 'not-ready,a,one,etcd is away; and more', 'ready,a,one,']);
});

test('a daemon that starts without its peers says so right after it is ready', () => {
  const heard: string[] = [];
  using _ = subscribe('daemon', ({ what, detail }) => heard.push(`${what}:${detail}`));
  new Readiness({ notReady: ['etcd was not reached yet'] }, 'a', 'one').begin();
  assert.deepEqual(heard, ['ready:', 'not-ready:etcd was not reached yet']);
});
