import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { makeFolder } from './folder.ts';

describe('folders that users name', () => {
  const dir = mkdtempSync(join(tmpdir(), 'millrace-folder-'));
  test('that cannot be made are refused at once', () => {
    writeFileSync(join(dir, 'file'), '');
    for (const path of [
      '/proc/nothing/here',
      '/proc/nothing',
      join(dir, 'file'),
      join(dir, 'file/below'),
      '/dev/null/x',
    ]) {
      assert.throws(() => makeFolder(path), { code: 'MILLRACE_ERR_USAGE', message: /^make the folder / });
    }
  });

  test('are made with all that is missing above them, and once made, are fine', () => {
    const path = join(dir, 'a/b/c');
    makeFolder(path);
    makeFolder(path);
    assert.ok(statSync(path).isDirectory());
    makeFolder('/');
    rmSync(dir, { recursive: true });
  });
});
