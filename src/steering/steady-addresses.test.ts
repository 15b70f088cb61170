import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { SteadyAddresses } from './steady-addresses.ts';

describe('the addresses of this host', () => {
  test('one whose interface lost its carrier stays, one that was taken away goes', () => {
    // 192.0.2.0/24 is nobody's; all of 127.0.0.0/8 is ours.
    let listed = ['127.0.0.7', '192.0.2.7', '::1'];
    const addresses = new SteadyAddresses(() => listed);
    assert.deepEqual(addresses.read(), ['127.0.0.7', '192.0.2.7', '::1']);
    listed = ['127.0.0.8'];
    assert.deepEqual(addresses.read(), ['127.0.0.8', '127.0.0.7', '::1']);
    assert.deepEqual(addresses.read(), ['127.0.0.8', '127.0.0.7', '::1']);
  });

  test('one that comes back is listed once', () => {
    let listed = ['127.0.0.7'];
    const addresses = new SteadyAddresses(() => listed);
    addresses.read();
    listed = [];
    assert.deepEqual(addresses.read(), ['127.0.0.7']);
    listed = ['127.0.0.7'];
    assert.deepEqual(addresses.read(), ['127.0.0.7']);
  });
});
