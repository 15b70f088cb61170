import assert from 'node:assert/strict';
import { test } from 'node:test';
import { whoIsBelieved } from './who-is-believed.ts';

const peers = [{ name: 'b', host: '10.0.0.2', port: 4790 }];
const tls = { ca: 'ca.pem', cert: 'a.pem', key: 'a.key' };
const etcd = { endpoints: ['http://127.0.0.1:2379'], prefix: '/mesh', leaseSeconds: 10 };

test('a daemon says in one line whom it takes for a peer', () => {
  assert.match(whoIsBelieved({ peers: [] }), /^nobody is believed/);
  assert.match(whoIsBelieved({ peers }), /anybody who reaches the control port from the IP address of a peer/);
  assert.match(whoIsBelieved({ peers, tls }), /a certificate by tls\.ca for the name of a peer$/);
  assert.match(whoIsBelieved({ peers, tls: { ...tls, crl: 'crl.pem' } }), /that is not on tls\.crl$/);
  const both = whoIsBelieved({ peers: [], etcd });
  assert.match(both, /\(insecure\); whoever may write \/mesh\/nodes in etcd says who the peers are/);
  assert.doesNotMatch(both, /\n/);
});
