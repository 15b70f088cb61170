import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { UsageError } from '../../errors.ts';
import { LineSplitter, MAX_LINE_BYTES } from '../../json-lines/line-splitter.ts';
import { parseIpEndpoint } from '../../steering/index.ts';
import { checkHello, decodeMessage, encodeMessage, MAX_LINK_BODY_BYTES, type Message } from './control-protocol.ts';

const hex = 'a'.repeat(32);
const hello = { millrace: 'control', version: 1, name: 'a', incarnation: hex, lanes: 1, wires: ['shm'] };
const without = (key: string): object => Object.fromEntries(Object.entries(hello).filter(([one]) => one !== key));

const hexes = fc.stringMatching(/^[0-9a-f]{32}$/);
const endpoints = fc
  .tuple(
    fc.oneof(
      fc.ipV4(),
      fc.ipV6().map((host) => `[${host}]`),
    ),
    fc.integer({ min: 1, max: 65_535 }),
  )
  .map(([host, port]) => parseIpEndpoint(`${host}:${port}`));
const hellos = fc.record({
  name: fc.stringMatching(/^[a-z0-9][a-z0-9._-]{0,20}$/),
  incarnation: hexes,
  lanes: fc.integer({ min: 1, max: 64 }),
  wires: fc.array(fc.stringMatching(/^[a-zA-Z0-9]{1,64}$/), { maxLength: 8 }),
});
const messages: fc.Arbitrary<Message> = fc.oneof(
  fc.record({ kind: fc.constant('hello'), hello: hellos, nonce: fc.option(hexes, { nil: undefined }) }),
  fc.record({ kind: fc.constant('proof'), nonce: hexes }),
  fc.record({ kind: fc.constantFrom('announce', 'withdraw'), endpoints: fc.array(endpoints) }),
  fc.record({
    kind: fc.constant('link'),
    link: fc.integer({ min: 0, max: 63 }),
    body: fc.dictionary(fc.string(), fc.oneof(fc.string(), fc.integer(), fc.array(fc.boolean()))),
  }),
  fc.record({ kind: fc.constantFrom('ping', 'pong'), number: fc.maxSafeNat() }),
  fc.record({ kind: fc.constantFrom('refused', 'bye'), reason: fc.stringMatching(/^[ -~]{0,100}$/) }),
);

function isMessageOrUsageError(line: string): void {
  try {
    decodeMessage(line);
  } catch (error) {
    assert.ok(error instanceof UsageError, line);
    assert.equal(error.cause, undefined, line);
  }
}

describe('the lines between daemons', () => {
  test('whatever is not exactly a message is refused', () => {
    for (const [line, reason] of [
      ['', /not JSON/],
      ['GET / HTTP/1.1', /not JSON/],
      ['null', /not an object/],
      ['[]', /not an object/],
      ['{}', /unknown kind/],
      ['{"what":1}', /unknown kind/],
      ['{"toString":1}', /unknown kind/],
      ['{"__proto__":{"ping":1}}', /unknown kind/],
      ['{"announce":"10.0.0.1:80"}', /no list/],
      ['{"announce":[1]}', /an endpoint that is none/],
      ['{"announce":["10.0.0.1:0"]}', /no address and port/],
      ['{"announce":["10.0.0.999:80"]}', /not an IP address/],
      ['{"announce":[],"withdraw":[]}', /too many parts/],
      [`{"announce":[${Array(1001).fill('"10.0.0.1:80"').join()}]}`, /at most 1000/],
      ['{"ping":-1}', /a ping that is no whole number/],
      ['{"ping":1e300}', /a ping that is no whole number/],
      ['{"pong":"1"}', /a pong that is no whole number/],
      ['{"proof":"abc"}', /a proof that is not 32 hex digits/],
      ['{"refused":7}', /a refused that is no text/],
      ['{"bye":null}', /a bye that is no text/],
      ['{"link":64,"body":{}}', /a link that is no whole number from 0 to 63/],
      ['{"link":0.5,"body":{}}', /a link that is no whole number/],
      ['{"link":0}', /body is not an object/],
      ['{"link":0,"body":[]}', /body is not an object/],
      ['{"link":0,"body":{},"more":1}', /too many parts/],
      [`{"link":0,"body":{"a":"${'x'.repeat(MAX_LINK_BODY_BYTES)}"}}`, /more than 16384 bytes/],
      [`{"link":0,"body":{"a":${'['.repeat(5000)}${']'.repeat(5000)}}}`, /nested too deep/],
      [JSON.stringify({ ...hello, millrace: 'verbs' }), /another protocol/],
      [JSON.stringify({ ...hello, version: 2, new: 1 }), /a version 2; this side speaks 1/],
      [JSON.stringify({ ...hello, version: { toString: 0 } }), /a version that is no number; this side/],
      [`${'['.repeat(30_000)}${']'.repeat(30_000)}`, /not an object/],
      [JSON.stringify({ ...hello, name: '../a' }), /a name that is none/],
      [JSON.stringify({ ...hello, incarnation: 'A'.repeat(32) }), /an? incarnation that is not 32 hex digits/],
      [JSON.stringify({ ...hello, lanes: 0 }), /a lanes that is no whole number from 1 to 64/],
      [JSON.stringify({ ...hello, lanes: 65 }), /from 1 to 64/],
      [JSON.stringify({ ...hello, wires: 'shm' }), /no list of at most 8/],
      [JSON.stringify({ ...hello, wires: Array(9).fill('shm') }), /no list of at most 8/],
      [JSON.stringify({ ...hello, wires: ['\u001b[2J'] }), /no list of at most 8/],
      [JSON.stringify({ ...hello, wires: ['x'.repeat(65)] }), /too long a name/],
      [JSON.stringify({ ...hello, nonce: 7 }), /a nonce that is not/],
      [JSON.stringify({ ...hello, more: 7 }), /too many parts/],
      ...['name', 'incarnation', 'lanes', 'wires'].map((key) => [JSON.stringify(without(key)), /none|that/] as const),
    ] as const) {
      assert.throws(() => decodeMessage(line), { code: 'MILLRACE_ERR_USAGE', message: reason }, line.slice(0, 100));
    }
  });

  test('this side does not send what the other would refuse', () => {
    const body = { text: 'x'.repeat(MAX_LINK_BODY_BYTES) };
    assert.throws(() => encodeMessage({ kind: 'link', link: 0, body }), { code: 'MILLRACE_ERR_USAGE' });
    assert.throws(() => encodeMessage({ kind: 'link', link: 64, body: {} }), { code: 'MILLRACE_ERR_USAGE' });
    assert.throws(() => encodeMessage({ kind: 'link', link: 0, body: [] }), { code: 'MILLRACE_ERR_USAGE' });
    assert.throws(() => checkHello({ name: 'a', incarnation: 'short', lanes: 1, wires: [] }), /incarnation/);
    const largest = { t: 'x'.repeat(MAX_LINK_BODY_BYTES - '{"t":""}'.length) };
    assert.equal(decodeMessage(encodeMessage({ kind: 'link', link: 63, body: largest }).trimEnd()).kind, 'link');
  });

  test('a reason from a peer cannot move the cursor of who reads it', () => {
    const message = decodeMessage(JSON.stringify({ refused: `\u001b[2J\n${'x'.repeat(1000)}` }));
    assert.ok(message.kind === 'refused');
    assert.match(message.reason, /^\?\[2J\?x{1,195}$/);
  });

  test('any text at all, and any JSON, is either a message or a UsageError', () => {
    const keys = fc.constantFrom('millrace', 'link', 'body', 'announce', 'ping', 'proof', 'bye', 'version', 'name');
    const often = { numRuns: 1000 };
    fc.assert(fc.property(fc.string(), isMessageOrUsageError), often);
    fc.assert(fc.property(fc.json(), isMessageOrUsageError), often);
    fc.assert(fc.property(fc.dictionary(keys, fc.jsonValue()), (body) => isMessageOrUsageError(JSON.stringify(body))));
    // Valid but for one part.
    fc.assert(
      fc.property(fc.constantFrom(...Object.keys(hello)), fc.jsonValue(), (key, value) =>
        isMessageOrUsageError(JSON.stringify({ ...hello, [key]: value })),
      ),
      often,
    );
  });

  test('messages survive the wire, in whatever pieces they come', () => {
    fc.assert(
      fc.property(fc.array(messages), fc.array(fc.integer({ min: 1, max: 100 }), { minLength: 1 }), (all, sizes) => {
        const wire = new TextEncoder().encode(all.map(encodeMessage).join(''));
        const lines = new LineSplitter();
        const heard: Message[] = [];
        for (let at = 0, index = 0; at < wire.length; index++) {
          const size = sizes[index % sizes.length] ?? 1;
          for (const line of lines.split(wire.subarray(at, at + size))) heard.push(decodeMessage(line));
          at += size;
        }
        assert.deepEqual(heard.map(encodeMessage), all.map(encodeMessage));
      }),
    );
  });

  test('the longest list of endpoints fits into a line', () => {
    const longest = parseIpEndpoint('[1111:2222:3333:4444:5555:6666:7777:8888]:65535');
    const line = encodeMessage({ kind: 'announce', endpoints: Array(1000).fill(longest) });
    assert.ok(line.length <= MAX_LINE_BYTES);
  });
});
