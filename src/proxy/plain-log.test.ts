// Connections that are left to TCP: kept for people, and told while somebody listens.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type ConnectionEvent, subscribe } from '../status/events.ts';
import { type Connection, endpointOf, verdicts } from '../steering/index.ts';
import { PlainLog } from './plain-log.ts';

function connect(verdict: keyof typeof verdicts): Connection {
  return {
    source: endpointOf({ family: 'ipv4', host: '0.0.0.0', port: 0 }),
    original: endpointOf({ family: 'ipv4', host: '10.0.0.2', port: 80 }),
    verdict: verdicts[verdict],
    pid: 4711,
    command: 'curl',
  } as Connection;
}

test('a connection that is left to TCP is told with its reason; others and shortcuts are not', () => {
  const heard: ConnectionEvent[] = [];
  const log = new PlainLog();
  const why = 'peer b is down';
  log.add(connect('notAnnounced'), why);
  {
    using _ = subscribe('connection', (event) => heard.push(event));
    for (const verdict of ['carried', 'own', 'shortcut', 'notAnnounced'] as const) log.add(connect(verdict), why);
  }
  log.add(connect('notAnnounced'), why);
  assert.equal(log.recent.length, 4);
  assert.equal(heard.length, 1);
  const { what, mode, local, remote, command, pid, reason } = heard[0];
  assert.deepEqual([what, mode, local, remote, command, pid], ['plain', 'plain', '*', '10.0.0.2:80', 'curl', 4711]);
  assert.match(reason, /\(peer b is down\)$/);
});
