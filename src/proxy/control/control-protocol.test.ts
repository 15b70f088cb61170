import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { MAX_LINE_BYTES } from '../../json-lines/line-splitter.ts';
import { parseIpEndpoint } from '../../steering/index.ts';
import { checkHello, controlProtocol, MAX_LINK_BODY_BYTES } from './control-protocol.ts';

const hello = {
  millrace: 'control',
  version: 7,
  name: 'a',
  incarnation: 'a'.repeat(32),
  lanes: 1,
  wires: ['shm'],
  admission: 'packets',
};

const found = { key: 'a'.repeat(32), proof: 'b'.repeat(32), link: 0 };

describe('the lines between daemons', () => {
  test('whatever is not exactly a message is refused', () => {
    for (const [message, reason] of [
      [{ kind: 'announce', endpoints: '10.0.0.1:80' }, /endpoints is "10.0.0.1:80"; expected a list of 0 to 1000/],
      [{ kind: 'announce', endpoints: [1] }, /endpoints\[0\] is 1; expected an address and port/],
      [{ kind: 'announce', endpoints: ['10.0.0.1:80', '10.0.0.1:0'] }, /endpoints\[1\]: .*no address and port/],
      [{ kind: 'announce', endpoints: ['10.0.0.999:80'] }, /not an IP address/],
      [{ kind: 'announce', endpoints: Array(1001).fill('10.0.0.1:80') }, /a list of 1001; expected a list of 0 to/],
      [{ kind: 'ping', number: -1 }, /number is -1; expected 0 to/],
      [{ kind: 'ping', number: 1e300 }, /number is 1e\+300/],
      [{ kind: 'pong', number: '1' }, /number is "1"/],
      [{ kind: 'proof', nonce: 'abc' }, /nonce is "abc"; expected 32 hexadecimal digits/],
      [{ kind: 'refused', reason: 7 }, /reason is 7; expected a text/],
      [{ kind: 'bye', reason: null }, /reason is null/],
      [
        { kind: 'addresses', number: 1, addresses: ['10.0.0.256'] },
        /addresses\[0\]: '10.0.0.256' is not an IP address/,
      ],
      [{ kind: 'addresses', number: 1, addresses: ['b.example'] }, /addresses\[0\] is .*; expected an IP address/],
      [{ kind: 'addresses', number: 1, addresses: Array(1001).fill('10.0.0.1') }, /addresses is a list of 1001/],
      [{ kind: 'link', link: 64, body: {} }, /link is 64; expected 0 to 63/],
      [{ kind: 'link', link: 0.5, body: {} }, /link is 0.5/],
      [{ kind: 'link', link: 0 }, /body is missing; expected an object/],
      [{ kind: 'link', link: 0, body: [] }, /body is a list of 0; expected an object/],
      [{ kind: 'link', link: 0, body: {}, more: 1 }, /more is no field of it/],
      [{ kind: 'link', link: 0, body: { a: 'x'.repeat(MAX_LINK_BODY_BYTES) } }, /body has 16392 bytes; expected 0 to/],
      [{ kind: 'link', link: 0, body: nested(5000) }, /body is nested deeper than 16/],
      [{ kind: 'directWaits', keys: [] }, /keys is a list of 0; expected a list of 1 to 64/],
      [{ kind: 'directWaits', keys: Array(65).fill('a'.repeat(32)) }, /keys is a list of 65/],
      [{ kind: 'directWaits', keys: ['a'.repeat(31)] }, /keys\[0\] is "a+"; expected 32 hexadecimal digits/],
      [{ kind: 'directWaits', keys: ['A'.repeat(32)] }, /keys\[0\] is "A+"; expected 32 hexadecimal digits/],
      [{ kind: 'directWaits', keys: 'a'.repeat(32) }, /keys is "a+"; expected a list/],
      [{ kind: 'directGone', keys: [7] }, /keys\[0\] is 7; expected 32 hexadecimal digits/],
      [{ kind: 'directFound', list: [{ ...found, link: 64 }] }, /list\[0\]\.link is 64; expected 0 to 63/],
      [{ kind: 'directFound', list: [{ ...found, link: -1 }] }, /list\[0\]\.link is -1/],
      [{ kind: 'directFound', list: [{ ...found, proof: 'g'.repeat(32) }] }, /list\[0\]\.proof is "g+"/],
      [{ kind: 'directFound', list: [{ ...found, proof: undefined }] }, /proof is missing/],
      [{ kind: 'directFound', list: Array(65).fill(found) }, /list is a list of 65/],
      [{ ...hello, name: '../a' }, /name is "..\/a"; expected a node name/],
      [{ ...hello, incarnation: 'A'.repeat(32) }, /incarnation is "A+"; expected 32 hexadecimal digits/],
      [{ ...hello, lanes: 0 }, /lanes is 0; expected 1 to 64/],
      [{ ...hello, lanes: 65 }, /lanes is 65/],
      [{ ...hello, wires: 'shm' }, /wires is "shm"; expected a list of 0 to 8/],
      [{ ...hello, wires: Array(9).fill('shm') }, /wires is a list of 9/],
      [{ ...hello, wires: ['\u001b[2J'] }, /wires\[0\] is .*; expected the name of a wire/],
      [{ ...hello, wires: ['x'.repeat(65)] }, /wires\[0\] is "x+; expected the name of a wire/],
      [{ ...hello, nonce: 7 }, /nonce is 7/],
    ] as const) {
      assert.throws(() => controlProtocol.decode(message), { code: 'MILLRACE_ERR_PROTOCOL', message: reason });
    }
  });

  test('this side does not send what the other would refuse', () => {
    const usage = { code: 'MILLRACE_ERR_USAGE', message: /^send a control message: / };
    const body = { text: 'x'.repeat(MAX_LINK_BODY_BYTES) };
    assert.throws(() => controlProtocol.line({ kind: 'link', link: 0, body }), usage);
    assert.throws(() => controlProtocol.line({ kind: 'link', link: 64, body: {} }), usage);
    assert.throws(() => controlProtocol.line({ kind: 'link', link: 0, body: [] }), usage);
    assert.throws(
      () => checkHello({ name: 'a', incarnation: 'short', lanes: 1, wires: [], admission: 'packets' }),
      /incarnation/,
    );
    const largest = { t: 'x'.repeat(MAX_LINK_BODY_BYTES - '{"t":""}'.length) };
    assert.equal(controlProtocol.parse(controlProtocol.line({ kind: 'link', link: 63, body: largest })).kind, 'link');
  });

  test('a reason from a peer cannot move the cursor of who reads it', () => {
    const message = controlProtocol.decode({ kind: 'refused', reason: `\u001b[2J\n${'x'.repeat(1000)}` });
    assert.ok(message.kind === 'refused');
    assert.match(message.reason, /^\\x0ax{196}$/);
  });

  test('the longest list of endpoints fits into a line', () => {
    const longest = parseIpEndpoint('[1111:2222:3333:4444:5555:6666:7777:8888]:65535');
    const line = controlProtocol.line({ kind: 'announce', endpoints: Array(1000).fill(longest) });
    assert.ok(line.length <= MAX_LINE_BYTES);
  });
});

function nested(depth: number): unknown {
  return JSON.parse(`{"a":${'['.repeat(depth)}${']'.repeat(depth)}}`);
}
