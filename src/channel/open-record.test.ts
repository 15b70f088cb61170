// The payload of an OPEN comes out as it went in, and one of a hostile peer is read or refused.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { ip } from '../native/index.ts';
import { endpointOf } from '../steering/index.ts';
import { OPEN_PAYLOAD_BYTES, readOpen, writeOpen } from './open-record.ts';

const OFFSET = 64;
const buffer = new ArrayBuffer(OFFSET + OPEN_PAYLOAD_BYTES + 64);
const words = new Uint32Array(buffer);

const port = fc.nat(65_535);
const address = fc.oneof(
  fc.tuple(fc.ipV4(), port).map(([host, number]) => ip(host, number)),
  fc
    .tuple(fc.nat(0xffff), fc.nat(0xffff), port)
    .map(([high, low, number]) => ip(`2001:db8::${high.toString(16)}:${low.toString(16)}`, number)),
);

describe('the payload of an OPEN', () => {
  test('with a port above 65535 is refused', () => {
    writeOpen(buffer, OFFSET, { client: ip('10.0.0.1', 1), original: ip('10.0.0.2', 2) });
    for (const word of [4, 9]) {
      const before = words[OFFSET / 4 + word];
      words[OFFSET / 4 + word] = 65_536 + word;
      assert.equal(readOpen(words, OFFSET), `port ${65_536 + word}`);
      words[OFFSET / 4 + word] = before;
    }
    assert.equal(typeof readOpen(words, OFFSET), 'object');
  });

  test('comes out as it went in, and nothing around it is written', () => {
    fc.assert(
      fc.property(address, address, (client, original) => {
        words.fill(0xa5a5_a5a5);
        writeOpen(buffer, OFFSET, { client, original });
        const open = readOpen(words, OFFSET);
        assert.ok(typeof open === 'object');
        assert.deepEqual([open.client, open.original].map(endpointOf), [client, original].map(endpointOf));
        const around = words.filter((_, index) => index < OFFSET / 4 || index >= (OFFSET + OPEN_PAYLOAD_BYTES) / 4);
        assert.ok(around.every((word) => word === 0xa5a5_a5a5));
      }),
    );
  });

  test('of any contents is read or refused', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(0xffff_ffff), { minLength: 10, maxLength: 10 }), (contents) => {
        words.set(contents, OFFSET / 4);
        const open = readOpen(words, OFFSET);
        const isRefused = Math.max(contents[4] ?? 0, contents[9] ?? 0) > 65_535;
        assert.equal(typeof open, isRefused ? 'string' : 'object');
      }),
    );
  });
});
