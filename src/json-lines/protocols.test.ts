// All protocols in JSON lines, by their tables: what one side sends the other understands, and
// nothing else gets through.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { linkProtocol } from '../channel/handshake.ts';
import { MillraceError, ProtocolError } from '../errors.ts';
import { controlProtocol } from '../proxy/control/control-protocol.ts';
import { anyText } from '../text/fixtures/any-text.ts';
import { transferProtocol } from '../transfer/protocol.ts';
import { qpProtocol } from '../verbs/endpoint/qp-endpoint.ts';
import { filesProtocol } from '../vortex/files/protocol.ts';
import { vortexProtocol } from '../vortex/net/protocol.ts';
import { mutations, wireMessages } from './fixtures/arbitrary.ts';
import { LineSplitter, MAX_LINE_BYTES } from './line-splitter.ts';
import type { MessageTable, Protocol } from './protocol.ts';

const protocols: readonly Protocol<MessageTable>[] = [
  controlProtocol,
  linkProtocol,
  qpProtocol,
  vortexProtocol,
  filesProtocol,
  transferProtocol,
];

const often = { numRuns: 200 };

/** What comes is refused in one short line, or it is a message that could be sent as it is. */
function checkBorder(protocol: Protocol<MessageTable>, value: unknown): void {
  try {
    const message = protocol.decode(value);
    assert.deepEqual(protocol.decode(JSON.parse(protocol.line(message))), message);
  } catch (error) {
    assert.ok(error instanceof ProtocolError, String(error));
    assert.ok(error.message.startsWith(`${protocol.name} message`), error.message);
    assert.ok(error.message.length < 500 && /^\P{C}*$/u.test(error.message), error.message);
  }
}

for (const protocol of protocols) {
  describe(`the messages of the protocol ${protocol.name}`, () => {
    test('arrive as they were sent, in whatever pieces', () => {
      fc.assert(
        fc.property(fc.array(wireMessages(protocol)), fc.integer({ min: 1, max: 100 }), (all, pieceBytes) => {
          const sent = all.map((each) => protocol.decode(each));
          const wire = Buffer.from(sent.map((each) => protocol.line(each)).join(''));
          const lines = new LineSplitter();
          const arrived: unknown[] = [];
          for (let at = 0; at < wire.length; at += pieceBytes) {
            lines.push(wire.subarray(at, at + pieceBytes));
            for (let line = lines.next(); line !== undefined; line = lines.next()) arrived.push(protocol.parse(line));
          }
          assert.deepEqual(arrived, sent);
        }),
      );
    });

    test('of every kind have none of their fields left out, and no other', () => {
      fc.assert(
        fc.property(wireMessages(protocol), fc.nat(), (message, at) => {
          const body = { ...message };
          const names = Object.keys(body);
          const name = names[at % names.length] ?? assert.fail();
          assert.throws(() => protocol.decode({ ...body, surplus: 1 }), /: surplus is no field of it$/);
          Reflect.deleteProperty(body, name);
          checkBorder(protocol, body);
        }),
      );
    });

    test('that are nearly right, or not at all, are refused in one short line', () => {
      fc.assert(
        fc.property(mutations(protocol), (value) => checkBorder(protocol, value)),
        often,
      );
      fc.assert(
        fc.property(fc.jsonValue(), (value) => checkBorder(protocol, value)),
        often,
      );
      const keys = fc.constantFrom('millrace', 'version', 'kind', ...Object.keys(protocol.table));
      const kinds = fc.constantFrom(protocol.name, protocol.version, ...Object.keys(protocol.table));
      const bodies = fc.dictionary(keys, fc.oneof(kinds, fc.jsonValue()));
      fc.assert(
        fc.property(bodies, (value) => checkBorder(protocol, value)),
        often,
      );
    });

    test('that are lines of anything are refused', () => {
      const lines = fc.oneof(anyText(), fc.json());
      fc.assert(
        fc.property(lines, (line) => {
          assert.throws(() => protocol.parse(line), ProtocolError);
        }),
        often,
      );
      for (const line of [`${'['.repeat(30_000)}${']'.repeat(30_000)}`, '{"__proto__":{"kind":"ping"}}', '', 'null']) {
        assert.throws(() => protocol.parse(line), ProtocolError, line.slice(0, 40));
      }
    });

    test('are of this protocol and this version, whatever their other fields', () => {
      assert.throws(() => protocol.decode({ millrace: 'other', version: protocol.version }), /its protocol is "other"/);
      assert.throws(
        () => protocol.decode({ millrace: protocol.name, version: 99, more: 1 }),
        new RegExp(`its version is 99; expected ${protocol.version}`),
      );
    });
  });
}

test('lines are cut at their ends, whatever bytes come', () => {
  fc.assert(
    fc.property(fc.array(fc.uint8Array({ maxLength: 40 })), fc.integer({ min: 1, max: 30 }), (pieces, maxBytes) => {
      const lines = new LineSplitter(maxBytes);
      const found: string[] = [];
      let error: unknown;
      try {
        for (const piece of pieces) {
          lines.push(Buffer.from(piece));
          for (let line = lines.next(); line !== undefined; line = lines.next()) found.push(line);
        }
      } catch (caught) {
        error = caught;
      }
      const expected = Buffer.concat(pieces).toString('latin1').split('\n');
      const isTooLong = expected.some((line) => line.length > maxBytes);
      assert.equal(error instanceof MillraceError, isTooLong);
      const whole = isTooLong ? expected.findIndex((line) => line.length > maxBytes) : expected.length - 1;
      assert.deepEqual(
        found,
        expected.slice(0, whole).map((line) => Buffer.from(line, 'latin1').toString()),
      );
    }),
  );
  assert.equal(MAX_LINE_BYTES, 65_536);
});
