// Writes a cpio archive of the "newc" kind, which is what the kernel unpacks as its first root.

import { Buffer } from 'node:buffer';

export interface CpioEntry {
  /** Without a leading slash. Folders come before what is in them. */
  readonly path: string;
  readonly kind: 'folder' | 'file' | 'link' | 'characterDevice';
  /** A file's bytes, or where a link points. */
  readonly content?: Uint8Array | string;
  /** Permission bits; 0o755 unless said otherwise. */
  readonly mode?: number;
  /** Major and minor number of a device. */
  readonly device?: readonly [number, number];
}

const kindBits = { folder: 0o040000, file: 0o100000, link: 0o120000, characterDevice: 0o020000 } as const;
const trailerName = 'TRAILER!!!';
/** Header and name together, and the content, each end on a multiple of this. */
const alignment = 4;

/**
 * The same entries give the same bytes: no times, owners or inode numbers of the machine that wrote
 * it.
 */
export function writeCpio(entries: readonly CpioEntry[]): Buffer {
  const parts = entries.flatMap((entry, index) => {
    if (entry.path === '' || entry.path.startsWith('/') || entry.path === trailerName) {
      throw new RangeError(`cpio: ${JSON.stringify(entry.path)} cannot be the name of an entry`);
    }
    const content = Buffer.from(entry.content ?? '');
    const header = headerOf(entry.path, kindBits[entry.kind] | (entry.mode ?? 0o755), index + 1, content.length, entry);
    return [header, content, padding(content.length)];
  });
  return Buffer.concat([...parts, headerOf(trailerName, 0, 0, 0, {})]);
}

/**
 * Layout: Documentation/driver-api/early-userspace/buffer-format.rst of the kernel; fields are 8
 * hexadecimal digits.
 */
function headerOf(
  path: string,
  mode: number,
  inode: number,
  size: number,
  { device }: Pick<CpioEntry, 'device'>,
): Buffer {
  const name = Buffer.from(`${path}\0`);
  const [major, minor] = device ?? [0, 0];
  const links = 1;
  // inode, mode, uid, gid, nlink, mtime, filesize, dev major and minor, rdev major and minor,
  // namesize, check.
  const fields = [inode, mode, 0, 0, links, 0, size, 0, 0, major, minor, name.length, 0];
  const head = Buffer.from(`070701${fields.map((value) => value.toString(16).padStart(8, '0')).join('')}`);
  return Buffer.concat([head, name, padding(head.length + name.length)]);
}

function padding(length: number): Buffer {
  return Buffer.alloc((alignment - (length % alignment)) % alignment);
}
