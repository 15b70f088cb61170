// Tests of the frames between host and agent: protocol errors first, then every way a stream can be
// cut.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { encodeFrame, FrameDecoder, type FrameType, frameTypes, maxPayloadBytes } from './frames.ts';

test('a payload that is too large is refused by the writer', () => {
  assert.throws(() => encodeFrame('input', 1, new Uint8Array(maxPayloadBytes + 1)), RangeError);
});

test('a length no writer would write is refused before it is waited for', () => {
  const header = Buffer.alloc(9);
  header.writeUInt32LE(maxPayloadBytes + 1);
  assert.throws(() => new FrameDecoder().push(header), /claims to have/);
});

test('an unknown type is refused', () => {
  assert.throws(() => new FrameDecoder().push(Buffer.from([0, 0, 0, 0, 99, 0, 0, 0, 0])), /no frame type 99/);
});

test('frames survive any cutting of the stream', () => {
  const type = fc.constantFrom(...(Object.keys(frameTypes) as FrameType[]));
  const frame = fc.record(
    { type, id: fc.nat(0xffff_ffff), payload: fc.uint8Array({ maxLength: 30 }) },
    { noNullPrototype: true },
  );
  fc.assert(
    fc.property(fc.array(frame), fc.array(fc.nat(50)), (frames, cuts) => {
      let rest = Buffer.concat(frames.map((each) => encodeFrame(each.type, each.id, each.payload)));
      const decoder = new FrameDecoder();
      const read = cuts.flatMap((cut) => {
        const chunk = rest.subarray(0, cut);
        rest = rest.subarray(cut);
        return decoder.push(chunk);
      });
      const all = [...read, ...decoder.push(rest)];
      assert.deepEqual(
        all.map((each) => ({ ...each, payload: new Uint8Array(each.payload) })),
        frames,
      );
    }),
  );
});
