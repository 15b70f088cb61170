// Tests of taking the kernel out of a bzImage, mostly of images that are not what they should be.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { zstdCompressSync } from 'node:zlib';
import { MillraceError } from '../../errors.ts';
import { vmlinuxOf } from './vmlinux.ts';

const kernel = Buffer.concat([Buffer.from('\x7fELF', 'latin1'), Buffer.alloc(1000, 7)]);

interface ImageParts {
  readonly payload?: Uint8Array;
  readonly sizeBytes?: number;
  readonly version?: number;
}

function imageOf({
  payload = zstdCompressSync(kernel),
  sizeBytes = kernel.length,
  version = 0x020f,
}: ImageParts = {}): Buffer {
  const setup = Buffer.alloc(2 * 512);
  setup[0x1f1] = 1;
  setup.write('HdrS', 0x202);
  setup.writeUInt16LE(version, 0x206);
  setup.writeUInt32LE(16, 0x248);
  setup.writeUInt32LE(payload.length + 4, 0x24c);
  const size = Buffer.alloc(4);
  size.writeUInt32LE(sizeBytes);
  return Buffer.concat([setup, Buffer.alloc(16), payload, size, Buffer.alloc(32)]);
}

const wrong: readonly (readonly [string, Uint8Array, RegExp])[] = [
  ['an empty file', Buffer.alloc(0), /is no bzImage/],
  ['a text', Buffer.alloc(5000, 'x'), /is no bzImage/],
  ['an old boot protocol', imageOf({ version: 0x0207 }), /older than 2\.08/],
  ['an image that is cut off', imageOf().subarray(0, 1060), /is cut off/],
  ['damaged compressed bytes', imageOf({ payload: zstdCompressSync(kernel).fill(9, 8) }), /unpack image: /],
  [
    'something else packed in it',
    imageOf({ payload: zstdCompressSync(Buffer.from('no')), sizeBytes: 2 }),
    /no ELF file/,
  ],
  ['an unknown compression', imageOf({ payload: Buffer.alloc(50, 1) }), /no ELF file/],
  ['a size that does not match', imageOf({ sizeBytes: 3 }), /its payload has 1004 bytes, not 3/],
];

for (const [what, image, message] of wrong) {
  test(`${what} is refused`, () => {
    assert.throws(
      () => vmlinuxOf(image, 'image'),
      (error) => error instanceof MillraceError && message.test(error.message),
    );
  });
}

test('the kernel comes out of an image packed with zstd', () => {
  assert.deepEqual(Buffer.from(vmlinuxOf(imageOf())), kernel);
});
