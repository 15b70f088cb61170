// Rules as people write them, and as the kernel gets them.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { ruleOf } from './explain.ts';
import { endpointOf, formatIpEndpoint, parseIpEndpoint } from './ip-endpoint.ts';
import { readRuleSet } from './layouts.ts';
import { formatNetwork, parseNetwork } from './network.ts';
import { compileRules, encodeRules, formatRule, MAX_RULES, parseRule, parseRules } from './rules.ts';

describe('rules', () => {
  test('what makes no sense is refused in one line that says what was meant', () => {
    for (const [line, reason] of [
      ['', /'' is none of pass, connect, shortcut/],
      ['conect to any', /did you mean connect/],
      ['connect too any', /'too' is none of to, from, cgroup, command, redirect/],
      ['connect to', /nothing follows 'to'/],
      ['connect to any to any', /'to' comes twice/],
      ['connect to 10.0.0.0/33', /no network/],
      ['connect to 10.0.0/8', /no network/],
      ['connect to 10.0.0.0/8:0x50', /no network with ports/],
      ['connect to any:80-', /no port or range/],
      ['connect to any:90-80', /no port or range/],
      ['connect to any:80,70000', /no port or range/],
      ['connect to fd00::/129', /no network/],
      ['connect command a-name-that-is-too-long', /at most 15 bytes/],
      ['pass redirect', /'redirect' belongs to connect/],
    ] as const) {
      assert.throws(() => parseRule(line), { code: 'MILLRACE_ERR_USAGE', message: reason }, line);
    }
  });

  test('a rule is printed as it is written', () => {
    for (const line of [
      'connect',
      'pass to any:22',
      'connect to 10.0.0.0/8:80,443-500 from 10.1.0.0/16 command redis-server',
      'connect to fd00::/8',
      'connect to [fd00::/8]:6379 from [fd00::1]:1000-2000 redirect',
      'shortcut to 10.0.0.1',
      'shortcut to any:1-1024 cgroup /system.slice',
    ]) {
      assert.equal(formatRule(parseRule(line)), line);
    }
  });

  test('files have comments and empty lines', () => {
    assert.deepEqual(parseRules('# all\n\n  pass to any:22  # ssh\nconnect\n').map(formatRule), [
      'pass to any:22',
      'connect',
    ]);
  });

  test('ranges of ports become rules of their own, in their place', () => {
    const set = compileRules([parseRule('pass to any:1,3-4'), parseRule('connect')], 7);
    assert.equal(set.generation, 7);
    const read = readRuleSet(new DataView(encodeRules(set).buffer), 0);
    assert.deepEqual(
      read.rules.slice(0, read.count).map((rule) => formatRule(ruleOf(rule))),
      ['pass to any:1', 'pass to any:3-4', 'connect'],
    );
  });

  test('more than the kernel has room for is refused', () => {
    const many = Array.from({ length: MAX_RULES + 1 }, () => parseRule('connect'));
    assert.throws(() => compileRules(many, 1), {
      code: 'MILLRACE_ERR_USAGE',
      message: /65 rules and port ranges: at most 64/,
    });
  });

  test('a cgroup that is not there is refused, also one beside the tree', () => {
    for (const path of ['/surely/not/there', '../../etc']) {
      assert.throws(() => compileRules([parseRule(`connect cgroup ${path}`)], 1), { code: 'MILLRACE_ERR_USAGE' });
    }
  });
});

describe('networks and endpoints', () => {
  const octet = fc.nat(255);
  const ipv4 = fc.tuple(octet, octet, octet, octet).map((parts) => parts.join('.'));
  const group = fc.nat(0xffff).map((word) => word.toString(16));
  const ipv6 = fc.array(group, { minLength: 8, maxLength: 8 }).map((groups) => ['fd00', ...groups.slice(1)].join(':'));

  test('a network holds the addresses that share its bits, and prints as it is read', () => {
    fc.assert(
      fc.property(fc.oneof(ipv4, ipv6), fc.nat(128), (host, bits) => {
        const width = host.includes(':') ? 128 : 32;
        const text = `${host}/${Math.min(bits, width)}`;
        const network = parseNetwork(text);
        assert.deepEqual(parseNetwork(formatNetwork(network)), network);
        const { address } = endpointOf(
          host.includes(':') ? { family: 'ipv6', host, port: 1 } : { family: 'ipv4', host, port: 1 },
        );
        assert.deepEqual(
          address.map((word, index) => (word & (network.mask[index] ?? 0)) >>> 0),
          network.address,
        );
      }),
    );
  });

  test('an endpoint prints as it is read', () => {
    fc.assert(
      fc.property(fc.oneof(ipv4, ipv6), fc.integer({ min: 1, max: 65_535 }), (host, port) => {
        const endpoint = parseIpEndpoint(host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`);
        assert.deepEqual(parseIpEndpoint(formatIpEndpoint(endpoint)), endpoint);
      }),
    );
    for (const text of ['10.0.0.1', '10.0.0.1:0', '10.0.0.1:65536', 'fd00::1:80', '[10.0.0.1:80', 'host:80', '']) {
      assert.throws(() => parseIpEndpoint(text), { code: 'MILLRACE_ERR_USAGE' }, text);
    }
  });
});
