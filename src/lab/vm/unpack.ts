// Unpacks files of kernel packages: xz by its program, zstd by Node.

import { spawnSync } from 'node:child_process';
import { zstdDecompressSync } from 'node:zlib';
import { MillraceError } from '../../errors.ts';
import { requireTool } from '../index.ts';

const xzMagic = Buffer.from([0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00]);
const zstdMagic = Buffer.from([0x28, 0xb5, 0x2f, 0xfd]);
/** A kernel has some 60 MB; more than ten times that is refused. */
const maxUnpackedBytes = 640 * 1024 * 1024;

type Compression = 'xz' | 'zstd' | 'none';

function compressionOf(bytes: Uint8Array): Compression {
  const startsWith = (magic: Buffer): boolean => magic.equals(bytes.subarray(0, magic.length));
  if (startsWith(xzMagic)) return 'xz';
  return startsWith(zstdMagic) ? 'zstd' : 'none';
}

/** `what` names the bytes in errors. Bytes that are not compressed come back as they are. */
export function unpack(bytes: Uint8Array, what: string): Uint8Array {
  switch (compressionOf(bytes)) {
    case 'xz':
      return unpackXz(bytes, what);
    case 'zstd':
      return unpackZstd(bytes, what);
    case 'none':
      return bytes;
  }
}

/**
 * `--single-stream`: the kernel's build appends the size to the stream, which is not part of it.
 */
function unpackXz(input: Uint8Array, what: string): Uint8Array {
  const xz = requireTool('xz', 'xz-utils');
  const { stdout, stderr, status, error } = spawnSync(xz, ['--decompress', '--stdout', '--single-stream'], {
    input,
    maxBuffer: maxUnpackedBytes,
  });
  if (status === 0) return stdout;
  throw failed(what, error?.message ?? stderr.toString().trim());
}

function unpackZstd(input: Uint8Array, what: string): Uint8Array {
  try {
    return zstdDecompressSync(input, { maxOutputLength: maxUnpackedBytes });
  } catch (error) {
    throw failed(what, (error as Error).message);
  }
}

function failed(what: string, reason: string): MillraceError {
  return new MillraceError('MILLRACE_ERR_FAILED', `unpack ${what}: ${reason}`);
}
