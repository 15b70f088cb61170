// Extracts the kernel, an ELF file, from a bzImage: QEMU starts that in half the time.

import { MillraceError } from '../../errors.ts';
import { unpack } from './unpack.ts';

/** Offsets in the boot header: Documentation/arch/x86/boot.rst of the kernel. */
const setupSectorsAt = 0x1f1;
const magicAt = 0x202;
const versionAt = 0x206;
const payloadOffsetAt = 0x248;
const payloadLengthAt = 0x24c;
const headerEnd = 0x250;
const sectorBytes = 512;
/** The value if the field is 0. */
const defaultSetupSectors = 4;
/** The first boot protocol that has the place of the payload. */
const minVersion = 0x0208;
/** The build appends the unpacked size to the payload. */
const sizeBytes = 4;

export function vmlinuxOf(image: Uint8Array, what = 'the kernel'): Uint8Array {
  const bytes = Buffer.from(image.buffer, image.byteOffset, image.byteLength);
  if (bytes.length < headerEnd || bytes.toString('latin1', magicAt, magicAt + 4) !== 'HdrS') {
    throw broken(what, 'it is no bzImage');
  }
  if (bytes.readUInt16LE(versionAt) < minVersion) throw broken(what, 'its boot protocol is older than 2.08');
  const setupSectors = bytes[setupSectorsAt] || defaultSetupSectors;
  const start = (setupSectors + 1) * sectorBytes + bytes.readUInt32LE(payloadOffsetAt);
  const end = start + bytes.readUInt32LE(payloadLengthAt);
  if (end > bytes.length || end - start <= sizeBytes) throw broken(what, 'it is cut off');
  const kernel = unpack(bytes.subarray(start, end - sizeBytes), what);
  if (Buffer.from(kernel.subarray(0, 4)).toString('latin1') !== '\x7fELF') {
    throw broken(what, 'its payload is no ELF file');
  }
  const expected = bytes.readUInt32LE(end - sizeBytes);
  if (kernel.length !== expected) throw broken(what, `its payload has ${kernel.length} bytes, not ${expected}`);
  return kernel;
}

function broken(what: string, reason: string): MillraceError {
  return new MillraceError('MILLRACE_ERR_FAILED', `unpack ${what}: ${reason}`);
}
