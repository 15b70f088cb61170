import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { AddressOwners } from './address-owners.ts';

describe('the owners of addresses', () => {
  const owners = (): AddressOwners => new AddressOwners((host) => host === '10.0.0.1' || host === 'fd00::1');

  test('an address is its first owner’s until that one lets it go', () => {
    const all = owners();
    all.claim('b', ['10.0.0.2', 'fd00::2']);
    all.claim('c', ['10.0.0.2', '10.0.0.3']);
    assert.equal(all.ownerOf('10.0.0.2'), 'b');
    assert.deepEqual(all.ownedBy('c'), ['10.0.0.3']);
    all.claim('b', ['fd00::2']);
    assert.equal(all.ownerOf('10.0.0.2'), 'c');
    all.release('c');
    assert.equal(all.ownerOf('10.0.0.2'), undefined);
    assert.deepEqual(all.ownedBy('b'), ['fd00::2']);
  });

  test('the address at which a peer is known is its own, whoever claims it first', () => {
    const all = owners();
    all.claim('c', ['10.0.0.2']);
    all.setPlace('b', '10.0.0.2');
    assert.equal(all.ownerOf('10.0.0.2'), 'b');
    all.setPlace('b', '10.0.0.9');
    assert.equal(all.ownerOf('10.0.0.2'), 'c');
    assert.equal(all.ownerOf('10.0.0.9'), 'b');
    all.setPlace('b', 'b.example');
    assert.equal(all.ownerOf('10.0.0.9'), undefined);
  });

  test('addresses are compared as numbers', () => {
    const all = owners();
    all.claim('b', ['FD00:0:0::2', '::ffff:10.0.0.2']);
    assert.equal(all.ownerOf('fd00::2'), 'b');
    assert.equal(all.ownerOf('10.0.0.2'), 'b');
    assert.equal(all.ownerOf('fd00:0:0:0:0:0:0:2'), 'b');
  });

  test('loopback, link-local, unspecified and multicast addresses, and this host’s own, are nobody’s', () => {
    const all = owners();
    const odd = [
      '127.0.0.1',
      '127.9.9.9',
      '::1',
      '0.0.0.0',
      '::',
      '224.0.0.1',
      '255.255.255.255',
      'ff02::1',
      'fe80::1',
    ];
    const mapped = ['::ffff:127.0.0.1', '::ffff:10.0.0.1'];
    all.claim('b', [...odd, ...mapped, '10.0.0.1', 'fd00:0::1']);
    for (const host of [...odd, ...mapped, '10.0.0.1', 'fd00::1']) assert.equal(all.ownerOf(host), undefined, host);
    assert.deepEqual(all.ownedBy('b'), []);
  });
});
