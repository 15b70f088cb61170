import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { encodeFrame, FrameFinder } from './port-frames.ts';

test('frames are found whatever lies between them and however the bytes are cut', () => {
  const part = fc.oneof(
    fc.nat({ max: 0xffff_ffff }).map((nonce) => ({ nonce, bytes: encodeFrame('hello', nonce) })),
    fc.constant({ nonce: undefined, bytes: encodeFrame('doorbell', 0) }),
    fc.uint8Array({ maxLength: 5, max: 64 }).map((bytes) => ({ nonce: undefined, bytes })),
  );
  fc.assert(
    fc.property(fc.array(part), fc.array(fc.integer({ min: 1, max: 20 })), (parts, cuts) => {
      const all = Buffer.concat(parts.map(({ bytes }) => bytes));
      const finder = new FrameFinder('hello');
      const found: number[] = [];
      let from = 0;
      for (const cut of cuts) {
        found.push(...finder.push(all.subarray(from, from + cut)));
        from += cut;
      }
      found.push(...finder.push(all.subarray(from)));
      assert.deepEqual(
        found,
        parts.flatMap(({ nonce }) => nonce ?? []),
      );
    }),
  );
});
