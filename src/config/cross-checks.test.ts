import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { parseConfig } from './parse.ts';

const refused = (text: string): string => {
  try {
    parseConfig(text, 'c.yaml', {});
  } catch (error) {
    return (error as Error).message;
  }
  return '';
};

describe('between keys of a config', () => {
  test('what contradicts itself is refused at the key that should change', () => {
    for (const [text, expected] of [
      [
        'listen: { addresses: [10.0.0.1, 10.0.0.2] }',
        /:1:33: listen\.addresses\[1\]: is a second address of its family/,
      ],
      ['listen: { addresses: [10.0.0.1, "::1", "::2"] }', /addresses\[2\]: is a second address/],
      ['listen: { proxyPort: 5, controlPort: 5 }', /listen\.controlPort: is a port of the lanes/],
      ['node: a\ninsecure: true\npeers: [{ name: a, address: x }]', /:3:17: peers\[0\]\.name: 'a' is this node itself/],
      [
        'insecure: true\npeers: [{ name: b, address: x }, { name: b, address: y }]',
        /peers\[1\]\.name: 'b' comes twice/,
      ],
      [
        'insecure: true\npeers: [{ name: web-1, address: x }]\naccept: [accept from w*, "deny from web-2,a"]',
        /:3:26: accept\[1\]: no peer is called 'web-2' \(did you mean web-1\?\); correct it, or add it to peers/,
      ],
      ['peers: [{ name: b, address: x }]', /peers: peers need tls .*millrace peer cert.* or insecure: true/],
      ['etcd: {}', /etcd: peers need tls/],
      ['insecure: true\ntls: { ca: a, cert: b, key: c }', /insecure: contradicts tls/],
      ['insecure: true\netcd: { username: u }', /etcd\.username: is given without password; give both/],
      ['insecure: true\netcd: { key: k }', /etcd\.key: is given without cert; give both/],
      ['insecure: true\netcd: { ca: k }', /etcd\.endpoints\[0\]: 'http:\S+' is not encrypted, but ca is given/],
      ['devices: [soft-shm, soft-shm]', /devices\[1\]: 'soft-shm' comes twice/],
      ['devices: [soft-roce]\nlanes: 2', /lanes: 2 lanes cannot share the one UDP port/],
      ['api: { http: "10.0.0.1:80" }', /api\.http: other hosts can reach 10\.0\.0\.1:80/],
      [
        'channel: { recordBytes: 1MiB }',
        /channel\.recordBytes: 1MiB is more than an eighth of ringBytes, which is 512KiB/,
      ],
      ['channel: { pollAfter: 129 }', /channel\.pollAfter: 129 is more than half of sendRequests, which is 128/],
      ['channel: { sendRequests: 16, pollAfter: 4 }', /channel\.requestsPerPost: 32 is more than sendRequests/],
      ['channel: { windowBytes: 32KiB }', /channel\.firstWindowBytes: 64KiB is more than windowBytes/],
      ['channel: { recordBytes: 4KiB, firstWindowBytes: 65KiB }', /firstWindowBytes: 65KiB is more than sixteen times/],
      ['channel: { windowBytes: 128MiB }', /channel\.windowBytes: 128MiB is more than memoryBytes/],
      ['channel: { deadMs: 1500 }', /channel\.heartbeatMs: 1000 is more than half of deadMs, which is 750/],
      [
        `rules: [${Array(65).fill('pass to any').join(', ')}]`,
        /rules: these are 65 rules and port ranges; give at most 64/,
      ],
      [`rules: ["pass to any:${Array(65).fill('1').join(',')}"]`, /rules: these are 65 rules/],
    ] as const) {
      assert.match(refused(text), expected, text);
    }
  });

  test('a check is silent when one of its keys is wrong by itself', () => {
    const message = refused('channel: { ringBytes: 1, recordBytes: 64MiB }\npeers: [{ name: b }]');
    assert.deepEqual(
      message.split('\n').map((line) => line.split(': ')[1]),
      ['channel.ringBytes', 'peers[0].address'],
    );
  });

  test('what fits is taken', () => {
    for (const text of [
      'listen: { addresses: ["fd00::1", 10.0.0.1], proxyPort: 0, controlPort: 0 }',
      'devices: [soft-roce]\nlanes: 1',
      'devices: [soft-roce]',
      'api: { http: "[::1]:80" }',
      'api: { http: false }',
      'api: { http: "0.0.0.0:80", allowRemote: true }',
      'tls: { ca: a, cert: b, key: c }\npeers: [{ name: zz, address: x }]',
      'insecure: true\netcd: {}\naccept: [accept from whoever]',
      'node: a\ninsecure: true\npeers: [{ name: b, address: x }]\naccept: ["accept from a,b,c*"]',
      'accept: []',
      'insecure: true\netcd: { username: u, password: p, ca: c, endpoints: ["https://e:2379"] }',
    ]) {
      assert.equal(refused(text), '', text);
    }
    assert.equal(parseConfig('devices: [soft-roce]', 'c.yaml', {}).lanes, 1);
  });
});
