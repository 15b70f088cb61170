import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { UsageError } from '../../errors.ts';
import { decodeMessage, encodeMessage, type Message } from './protocol.ts';

const sha256 = fc.stringMatching(/^[0-9a-f]{64}$/);
const sizeBytes = fc.maxSafeNat();
const name = fc.stringMatching(/^[a-zäß€ _-][a-z.äß€]{0,40}$/u);

const plain = { noNullPrototype: true } as const;

const text = <const T extends string>(...kinds: T[]): fc.Arbitrary<T> => fc.constantFrom(...kinds);
const maybe = <T>(value: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> => fc.option(value, { nil: undefined });
const modifiedNs = fc.bigInt({ min: -(2n ** 60n), max: 2n ** 63n }).map(String);
const port = fc.integer({ min: 1, max: 65_535 });
const code = text('ENOSPC', 'MILLRACE_ERR_COURIER_CHANGED');

const messages: fc.Arbitrary<Message> = fc.oneof(
  fc.record({ kind: text('hello', 'busy') }, plain),
  fc.record(
    { kind: text('parcel'), name: maybe(name), sizeBytes: maybe(sizeBytes), modifiedNs: maybe(modifiedNs) },
    plain,
  ),
  fc.record({ kind: text('have'), bytes: sizeBytes }, plain),
  fc.record({ kind: text('prefix', 'kept'), sha256 }, plain),
  fc.record({ kind: text('stream'), port, startBytes: sizeBytes }, plain),
  fc.record({ kind: text('sum'), sizeBytes, sha256 }, plain),
  fc.record({ kind: text('failed'), code, reason: fc.stringMatching(/^[ -~]{0,200}$/) }, plain),
);

describe('what sender and receiver of a file say', () => {
  test('names that lead out of a folder, or are none, are refused', () => {
    for (const bad of ['', '.', '..', '../x', '/etc/passwd', 'a/b', 'a\0b', 'a\nb', '\u001b[2J', 'x'.repeat(256), 7]) {
      const line = { parcel: { name: bad, sizeBytes: 1, modifiedNs: '1' } };
      assert.throws(() => decodeMessage(line), UsageError, JSON.stringify(bad));
    }
  });

  test('nonsense is refused with a reason', () => {
    for (const [line, reason] of [
      [null, /not an object/],
      [[], /not an object/],
      [{}, /no known kind/],
      [{ millrace: 'vortex', version: 1 }, /it speaks "vortex"/],
      [{ millrace: 'courier', version: 2 }, /version 2/],
      [{ millrace: 'courier', version: 1, more: 1 }, /unknown part: more/],
      [{ have: -1 }, /have is -1/],
      [{ have: 1.5 }, /have is 1.5/],
      [{ have: 2 ** 53 }, /have is/],
      [{ have: 1, busy: true }, /more than one part/],
      [{ stream: { port: 0, startBytes: 0 } }, /port is 0/],
      [{ sum: { sizeBytes: 1, sha256: 'AB' } }, /64 hexadecimal digits/],
      [{ parcel: { name: 'x', sizeBytes: 1, modifiedNs: 5 } }, /no time/],
    ] as const) {
      assert.throws(() => decodeMessage(line), reason);
    }
  });

  test('every message comes back as it was', () => {
    fc.assert(
      fc.property(messages, (message) => {
        assert.deepEqual(decodeMessage(JSON.parse(JSON.stringify(encodeMessage(message)))), message);
      }),
    );
  });

  test('whatever comes is a message or a UsageError, and a reason moves no cursor', () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        try {
          decodeMessage(value);
        } catch (error) {
          assert.ok(error instanceof UsageError);
          assert.match(error.message, /^[ -~]*$/);
        }
      }),
    );
    const failed = decodeMessage({ failed: { code: 'rm -rf', reason: 'a\u001b[2Jb\nc' } });
    assert.deepEqual(failed, { kind: 'failed', code: 'MILLRACE_ERR_FAILED', reason: 'a?[2Jb?c' });
  });
});
