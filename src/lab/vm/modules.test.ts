// Tests of the order in which kernel modules are loaded, on modules that are none.

import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { zstdCompressSync } from 'node:zlib';
import { UnsupportedError } from '../../errors.ts';
import { ModuleTree, needsOf } from './modules.ts';

const dir = mkdtempSync(join(tmpdir(), 'millrace-modules-'));
after(() => rmSync(dir, { recursive: true }));

const moduleOf = (needs: string): Buffer => Buffer.from(`ELF\0license=GPL\0depends=${needs}\0name=x\0`);

mkdirSync(join(dir, 'kernel/net'), { recursive: true });
writeFileSync(join(dir, 'modules.builtin'), 'kernel/net/core-part.ko\n');
writeFileSync(join(dir, 'kernel/net/top.ko'), moduleOf('middle-one,core_part'));
writeFileSync(join(dir, 'kernel/middle-one.ko.zst'), zstdCompressSync(moduleOf('bottom')));
writeFileSync(join(dir, 'kernel/bottom.ko'), moduleOf(''));

test('a module this kernel does not have is named', () => {
  assert.throws(
    () => new ModuleTree(dir).withNeeds(['none']),
    (error) => error instanceof UnsupportedError && /no module none/.test(error.message),
  );
});

test('a file that says nothing of its needs has none', () => {
  assert.deepEqual(needsOf(Buffer.from('anything')), []);
});

test('what a module needs comes before it, once, and what is built in not at all', () => {
  const names = new ModuleTree(dir).withNeeds(['top', 'core_part', 'bottom']).map(({ name }) => name);
  assert.deepEqual(names, ['bottom', 'middle_one', 'top']);
});

test('modules come unpacked', () => {
  const [, middle] = new ModuleTree(dir).withNeeds(['middle_one']);
  assert.deepEqual(Buffer.from(middle?.content ?? []), moduleOf('bottom'));
});
