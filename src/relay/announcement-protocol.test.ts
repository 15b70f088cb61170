import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { LineSplitter, MAX_LINE_BYTES } from '../json-lines/line-splitter.ts';
import { parseIpEndpoint } from '../steering/index.ts';
import { decodeMessage, encodeMessage, type Message } from './announcement-protocol.ts';

const endpoints = fc
  .tuple(
    fc.oneof(
      fc.ipV4(),
      fc.ipV6().map((host) => `[${host}]`),
    ),
    fc.integer({ min: 1, max: 65_535 }),
  )
  .map(([host, port]) => parseIpEndpoint(`${host}:${port}`));

const messages: fc.Arbitrary<Message> = fc.oneof(
  fc.stringMatching(/^[a-z0-9][a-z0-9._-]{0,20}$/).map((name) => ({ kind: 'hello', name }) as const),
  fc.record({ kind: fc.constantFrom('announce', 'withdraw'), endpoints: fc.array(endpoints) }),
  fc.record({ kind: fc.constantFrom('named', 'forget'), local: endpoints }),
  fc.record({ kind: fc.constant('caller'), local: endpoints, client: endpoints }),
  fc.constant({ kind: 'alive' } as const),
);

describe('the lines between relays', () => {
  test('whatever is not exactly a message is refused', () => {
    for (const [line, reason] of [
      ['', /not JSON/],
      ['no', /not JSON/],
      ['null', /not an object/],
      ['[]', /not an object/],
      ['{"what":1}', /unknown kind/],
      ['{"announce":"10.0.0.1:80"}', /no list/],
      ['{"announce":[1]}', /an endpoint that is none/],
      ['{"announce":["10.0.0.1"]}', /no address and port/],
      ['{"announce":["10.0.0.1:0"]}', /no address and port/],
      ['{"announce":["10.0.0.999:80"]}', /not an IP address/],
      ['{"announce":[],"withdraw":[]}', /too many parts/],
      [`{"announce":[${Array(1001).fill('"10.0.0.1:80"').join()}]}`, /at most 1000/],
      ['{"caller":["10.0.0.1:80"]}', /no pair/],
      ['{"named":["10.0.0.1:80"]}', /an endpoint that is none/],
      ['{"millrace":"verbs","version":1,"name":"a"}', /another protocol/],
      ['{"millrace":"announcements","version":2,"name":"a"}', /version 2; this side speaks 1/],
      ['{"millrace":"announcements","version":1,"name":"../a"}', /a name that is none/],
      ['{"millrace":"announcements","version":1}', /a name that is none/],
    ] as const) {
      assert.throws(() => decodeMessage(line), { code: 'MILLRACE_ERR_USAGE', message: reason }, line);
    }
  });

  test('any JSON at all is either a message or a UsageError', () => {
    fc.assert(
      fc.property(fc.json(), (line) => {
        try {
          decodeMessage(line);
        } catch (error) {
          assert.equal((error as { readonly code?: string }).code, 'MILLRACE_ERR_USAGE');
        }
      }),
    );
  });

  test('a reason from a peer cannot move the cursor of who reads it', () => {
    const message = decodeMessage(JSON.stringify({ refused: `\u001b[2J${'x'.repeat(1000)}` }));
    assert.ok(message.kind === 'refused');
    assert.match(message.reason, /^\?\[2Jx{1,196}$/);
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

  test('a line without an end is refused before it fills the memory', () => {
    const lines = new LineSplitter();
    const piece = new Uint8Array(1024).fill(120);
    assert.throws(() => {
      for (let size = 0; size <= MAX_LINE_BYTES; size += piece.length) Array.from(lines.split(piece));
    }, /a line of more than 65536 bytes/);
  });
});
