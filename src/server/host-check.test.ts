import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { isHostAllowed } from './host-check.ts';

describe('the Host header', () => {
  test('of another name, or none, is refused', () => {
    for (const host of [
      undefined,
      '',
      'evil.example',
      'evil.example:4791',
      '127.0.0.1.evil.example',
      'localhost.evil.example',
      '127.evil',
      '[::2]',
      '::1',
      'localhost:http',
      'user@localhost',
      'localhost/../x',
    ]) {
      assert.equal(isHostAllowed(host, '127.0.0.1'), false, String(host));
    }
  });

  test('of this machine is right, with and without a port', () => {
    for (const host of ['localhost', 'LOCALHOST:1', '127.0.0.1', '127.1.2.3:80', '[::1]', '[::1]:4791']) {
      assert.equal(isHostAllowed(host, '127.0.0.1'), true, host);
    }
  });

  test('may be what was configured, and any address when that is all addresses', () => {
    assert.equal(isHostAllowed('Node-7.lan:4791', 'node-7.lan'), true);
    assert.equal(isHostAllowed('[fd00::7]:4791', 'fd00::7'), true);
    assert.equal(isHostAllowed('10.0.0.7:4791', '0.0.0.0'), true);
    assert.equal(isHostAllowed('[fd00::7]', '::'), true);
    assert.equal(isHostAllowed('evil.example', '0.0.0.0'), false);
    assert.equal(isHostAllowed('10.0.0.7', '10.0.0.8'), false);
  });
});
