// Tests of the cpio writer: what it writes is read back by the rules of the format.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { type CpioEntry, writeCpio } from './cpio.ts';

interface Parsed {
  readonly path: string;
  readonly mode: number;
  readonly content: Buffer;
  readonly device: readonly [number, number];
}

/** By the kernel's description of the format, not by the writer's constants. */
function parse(archive: Buffer): readonly Parsed[] {
  const entries: Parsed[] = [];
  for (let at = 0; ; ) {
    assert.equal(archive.toString('latin1', at, at + 6), '070701');
    const field = (index: number): number =>
      Number.parseInt(archive.toString('latin1', at + 6 + 8 * index, at + 14 + 8 * index), 16);
    const [mode, size, major, minor, nameSize] = [field(1), field(6), field(9), field(10), field(11)];
    const path = archive.toString('utf8', at + 110, at + 110 + nameSize - 1);
    const start = (at + 110 + nameSize + 3) & ~3;
    if (path === 'TRAILER!!!') return entries;
    entries.push({ path, mode, content: archive.subarray(start, start + size), device: [major, minor] });
    at = (start + size + 3) & ~3;
  }
}

for (const path of ['', '/etc', 'TRAILER!!!']) {
  test(`an entry named ${JSON.stringify(path)} is refused`, () => {
    assert.throws(() => writeCpio([{ path, kind: 'file' }]), RangeError);
  });
}

test('folders, files, links and devices come out as they went in', () => {
  const archive = writeCpio([
    { path: 'etc', kind: 'folder' },
    { path: 'etc/motd', kind: 'file', content: 'hello', mode: 0o644 },
    { path: 'etc/link', kind: 'link', content: 'motd' },
    { path: 'console', kind: 'characterDevice', device: [5, 1], mode: 0o600 },
  ]);
  assert.deepEqual(
    parse(archive).map(({ path, mode, content, device }) => [path, mode.toString(8), content.toString(), ...device]),
    [
      ['etc', '40755', '', 0, 0],
      ['etc/motd', '100644', 'hello', 0, 0],
      ['etc/link', '120755', 'motd', 0, 0],
      ['console', '20600', '', 5, 1],
    ],
  );
});

test('any names and contents survive', () => {
  const path = fc.string({ minLength: 1, maxLength: 20, unit: fc.constantFrom('a', 'ü', '-', ' ', '.') });
  const entry = fc.record({ path, content: fc.uint8Array({ maxLength: 40 }) }, { noNullPrototype: true });
  fc.assert(
    fc.property(fc.array(entry, { maxLength: 8 }), (files) => {
      const entries = files.map((file): CpioEntry => ({ ...file, kind: 'file' }));
      const read = parse(writeCpio(entries)).map((each) => ({
        path: each.path,
        content: new Uint8Array(each.content),
      }));
      assert.deepEqual(read, files);
    }),
  );
});
