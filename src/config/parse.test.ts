import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { ConfigError } from './config-error.ts';
import { MAX_CONFIG_BYTES, parseConfig } from './parse.ts';

function problemsOf(text: string): readonly string[] {
  try {
    parseConfig(text, 'c.yaml', {});
  } catch (error) {
    assert.ok(error instanceof ConfigError, String(error));
    assert.equal(error.code, 'MILLRACE_ERR_USAGE');
    return error.message.split('\n');
  }
  return [];
}

function assertProblem(text: string, expected: RegExp): void {
  const problems = problemsOf(text);
  assert.ok(
    problems.some((line) => expected.test(line)),
    `${text}\n-> ${problems.join('\n')}`,
  );
}

describe('a config that is not YAML', () => {
  test('is refused with the place', () => {
    for (const [text, expected] of [
      ['node: [a', /^c\.yaml:1:\d+: is not YAML: .*; check the indentation/],
      ['node: a\nnode: b', /^c\.yaml:2:1: this key comes twice/],
      ['node: a\n---\nnode: b', /^c\.yaml:2:\d+: starts a second document/],
      ['\tnode: a', /^c\.yaml:1:1: is not YAML/],
      ['node: *other', /^c\.yaml:1:\d+: .*alias/i],
      ['node: !!binary x', /^c\.yaml:1:\d+: node: a mapping does not fit/],
      ['? [a]\n: 2', /^c\.yaml:1:\d+: is a key that is not text/],
      ['- node', /^c\.yaml:1:1: a list does not fit; give a mapping/],
      ['text', /^c\.yaml:1:1: 'text' does not fit; give a mapping/],
    ] as const) {
      assertProblem(text, expected);
    }
  });

  test('aliases cannot fill the memory', () => {
    const lines = ['a: &a [x, x, x, x, x, x, x, x, x]'];
    for (let level = 1; level < 12; level++) {
      const [name, before] = [String.fromCharCode(97 + level), String.fromCharCode(96 + level)];
      lines.push(`${name}: &${name} [${Array(9).fill(`*${before}`).join(', ')}]`);
    }
    assertProblem(lines.join('\n'), /Excessive alias count.*; write it out without aliases/);
  });

  test('an alias to itself, deep nesting and the names of prototypes are problems like others', () => {
    assertProblem('peers: &p [*p]', /peers\[0\]: a list does not fit; give a mapping of name and address/);
    assertProblem('['.repeat(20_000), /nested too deeply/);
    assert.ok(problemsOf('['.repeat(20_000)).length <= 10);
    assertProblem('__proto__: { node: a }', /^c\.yaml:1:1: __proto__: there is no such key/);
    assertProblem('constructor: a', /constructor: there is no such key/);
  });

  test('is refused when it is too large', () => {
    assertProblem(`# ${'x'.repeat(MAX_CONFIG_BYTES)}`, /^c\.yaml:1:1: is larger than 1048576 bytes/);
  });

  test('no text at all makes the parser fail in another way', () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.json(), fc.string({ unit: 'grapheme' })), (text) => {
        problemsOf(text);
      }),
      { numRuns: 300 },
    );
  });
});

describe('values that do not fit', () => {
  test('all problems come at once, in the order of the file, each with its place and path', () => {
    const text = `node: a
rules:
  - connect to any
  - conect to any
channel:
  ringByte: 4MiB
  dataQps: 17
  ringBytes: 1MiB
  recordBytes: 1MiB
peers:
  - { name: b, address: 10.0.0.300 }
colour: red
`;
    assert.deepEqual(problemsOf(text), [
      "c.yaml:4:5: rules[1]: rule 'conect to any': 'conect' is none of pass, connect, shortcut (did you mean connect?)",
      'c.yaml:6:3: channel.ringByte: there is no such key (did you mean ringBytes?); correct it or leave it out',
      'c.yaml:7:12: channel.dataQps: 17 does not fit; give a whole number from 1 to 16',
      'c.yaml:9:16: channel.recordBytes: 1MiB is more than an eighth of ringBytes, which is 128KiB; give less, or more ringBytes',
      "c.yaml:11:25: peers[0].address: '10.0.0.300' does not fit; give a host with or without a port, as 10.0.0.2, b.example:4790 or [fd00::2]:4790",
      'c.yaml:12:1: colour: there is no such key (there is node, instance, cgroup, listen, rules, peers, accept, etcd, …); correct it or leave it out',
    ]);
  });

  test('each kind of value says what it wants', () => {
    for (const [text, expected] of [
      ['node: "a b"', /node: 'a b' does not fit; give up to 63 letters/],
      ['instance: A', /instance: 'A' does not fit; give up to 32 of a-z/],
      ['cgroup: demo', /cgroup: 'demo' does not fit; give a path from the root/],
      ['listen: { addresses: ["::"] }', /listen\.addresses\[0\]: '::' does not fit; give one address of this host/],
      ['listen: { proxyPort: 65536 }', /65536 does not fit/],
      ['rules: connect', /rules: 'connect' does not fit; give a list/],
      ['rules: [""]', /rules\[0\]: '' does not fit; give one rule per item/],
      ['rules: ["connect to 10.0.0.0/40"]', /rules\[0\]: .*10\.0\.0\.0\/40/],
      ['accept: all', /accept: 'all' does not fit; give a list/],
      ['accept: [""]', /accept\[0\]: '' does not fit; give one accept line per item, as 'accept from/],
      [
        'accept: [deny from b, deni]',
        /accept\[1\]: accept line 'deni': 'deni' is none of accept, deny \(did you mean deny\?\)/,
      ],
      ['peers: [b]', /peers\[0\]: 'b' does not fit; give a mapping of name and address/],
      ['peers: [{ name: b }]', /peers\[0\]\.address: is missing; give a host/],
      ['tls: { ca: x }', /tls\.cert: is missing; give the file with the certificate/],
      ['etcd: { endpoints: [] }', /etcd\.endpoints: a list does not fit; give at least one URL/],
      ['etcd: { endpoints: ["127.0.0.1:2379"] }', /give a URL without a path/],
      ['etcd: { prefix: millrace/ }', /etcd\.prefix: .*give a prefix for keys/],
      ['etcd:', /etcd: is empty; give a mapping/],
      ['insecure: yes', /insecure: 'yes' does not fit; give true or false/],
      ['devices: []', /devices: .*give at least one device/],
      ['devices: [soft-tpc]', /did you mean soft-tcp\?/],
      ['device: { mtu: 1500 }', /1500 does not fit; give 256, 512, 1024, 2048 or 4096/],
      ['lanes: 0', /lanes: 0 does not fit; give auto or a whole number from 1 to 64/],
      ['channel: { ringBytes: 3MiB }', /'3MiB' does not fit; give a power of two from 64KiB to 1GiB/],
      ['channel: { windowBytes: 1MB }', /'1MB' does not fit; give a size from/],
      ['channel: { spinUs: soon }', /give auto or a whole number from 0 to 10000/],
      ['channel: { recoverySeconds: -1 }', /give a number of seconds from 0 to 3600/],
      ['api: { http: ":80" }', /give an address and a port, as 127\.0\.0\.1:4792, or false/],
      ['api: { socket: x.sock }', /give an absolute path of at most 107 bytes/],
      ['log: { level: loud }', /give one of debug, info/],
    ] as const) {
      assertProblem(text, expected);
    }
  });

  test('a password is not repeated in the message', () => {
    const [line = ''] = problemsOf('etcd: { username: u, password: 12345 }\ninsecure: true');
    assert.match(line, /etcd\.password: does not fit/);
    assert.doesNotMatch(line, /12345/);
  });

  test('what would move the cursor is not repeated either', () => {
    const [line = ''] = problemsOf('node: "\\e[2Ja\\u202e b"');
    assert.match(line, /node: 'a\\u\{202e\} b' does not fit/);
  });
});

describe('a config', () => {
  test('may be empty: everything has a default', () => {
    for (const text of ['', '\n', '# nothing yet\n', '{}']) {
      const config = parseConfig(text, 'c.yaml', {});
      assert.equal(config.instance, 'millrace');
      assert.equal(config.api.socket, '/run/millrace/millrace.sock');
      assert.deepEqual(config.api.http, { host: '127.0.0.1', port: 4792 });
      assert.deepEqual(config.devices, ['soft-shm', 'soft-tcp']);
      assert.equal(config.channel.ringBytes, 4 * 1024 * 1024);
      assert.equal(config.channel.slotBytes, 256);
      assert.equal(config.etcd, undefined);
      assert.ok(config.lanes >= 1 && config.node !== '');
    }
  });

  test('has its files beside itself, and its socket in the run folder', () => {
    const text = 'instance: b\ntls: { ca: ca.pem, cert: sub/a.pem, key: /keys/a.key }\ndevice: { runtimeDir: run }';
    const config = parseConfig(text, '/etc/millrace/c.yaml', { MILLRACE_RUN_DIR: '/tmp/r' });
    assert.deepEqual(config.tls, { ca: '/etc/millrace/ca.pem', cert: '/etc/millrace/sub/a.pem', key: '/keys/a.key' });
    assert.equal(config.device.runtimeDir, '/etc/millrace/run');
    assert.equal(config.api.socket, '/tmp/r/b.sock');
  });

  test('has peers with hosts and ports, and the first address as that of the device', () => {
    const text = `insecure: true
listen: { addresses: [10.0.0.1, "fd00::1"] }
peers:
  - { name: b, address: 10.0.0.2 }
  - { name: c, address: "c.example:5000" }
  - { name: d, address: "fd00::4" }
  - { name: e, address: "[fd00::5]:6000" }`;
    const config = parseConfig(text, 'c.yaml', {});
    assert.deepEqual(config.peers, [
      { name: 'b', host: '10.0.0.2', port: 4790 },
      { name: 'c', host: 'c.example', port: 5000 },
      { name: 'd', host: 'fd00::4', port: 4790 },
      { name: 'e', host: 'fd00::5', port: 6000 },
    ]);
    assert.equal(config.device.address, '10.0.0.1');
  });

  test('takes a few aliases', () => {
    const text = 'insecure: &yes true\napi: { allowRemote: *yes, http: "0.0.0.0:80" }';
    assert.equal(parseConfig(text, 'c.yaml', {}).api.allowRemote, true);
  });
});
