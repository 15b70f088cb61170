import assert from 'node:assert/strict';
import { test } from 'node:test';
import { addressText, parseAddress } from './address.ts';

test('addresses that are none are refused', () => {
  for (const text of ['', 'a b', 'host:port', 'host:70000', 'a:b:c', '[::1', '[host]:1', 'host:']) {
    assert.throws(() => parseAddress(text), /is no address; expected HOST, HOST:PORT or \[IPV6\]:PORT/, text);
  }
});

test('hosts, ports, both, and IPv6 with its colons', () => {
  for (const [text, host, port] of [
    ['10.0.0.1', '10.0.0.1', 40_104],
    ['node-b:9000', 'node-b', 9000],
    [':9000', undefined, 9000],
    ['*:0', undefined, 0],
    ['fd77::1', 'fd77::1', 40_104],
    ['[fd77::1]', 'fd77::1', 40_104],
    ['[fd77::1]:9000', 'fd77::1', 9000],
  ] as const) {
    assert.deepEqual(parseAddress(text), { host, port });
  }
  assert.equal(addressText({ host: 'fd77::1', port: 1 }), '[fd77::1]:1');
  assert.equal(addressText({ host: undefined, port: 1 }), '*:1');
});
