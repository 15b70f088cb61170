import assert from 'node:assert/strict';
import { chmodSync, chownSync, lchownSync, mkdirSync, mkdtempSync, rmSync, statSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { makeRunFolder } from './run-folder.ts';

const nobody = 65_534;

describe('folders for sockets', () => {
  const dir = mkdtempSync(join(tmpdir(), 'millrace-run-'));
  after(() => rmSync(dir, { recursive: true }));
  const refuses = (path: string, message: RegExp): void =>
    assert.throws(() => makeRunFolder(path), { code: 'MILLRACE_ERR_PERMISSION', message });

  test('that others may write to, themselves or on the way there, are refused with what to do', () => {
    const [open, group, sticky] = [join(dir, 'open'), join(dir, 'group'), join(dir, 'sticky')];
    for (const [path, mode] of [
      [open, 0o777],
      [group, 0o770],
      [sticky, 0o1777],
    ] as const) {
      mkdirSync(path);
      chmodSync(path, mode);
      refuses(path, /may be written by other users, .*; remove it .*, or choose another folder with MILLRACE_RUN_DIR/);
    }
    refuses(join(open, 'below'), /open may be written by other users/);
    symlinkSync(open, join(dir, 'link'));
    refuses(join(dir, 'link'), /open may be written by other users/);
    // As below /tmp.
    makeRunFolder(join(sticky, 'below'));
  });

  test("that another user has prepared are refused, and so are that user's symbolic links", () => {
    // Only root can give files to somebody else.
    if (process.geteuid?.() !== 0) return;
    const foreign = join(dir, 'foreign');
    mkdirSync(foreign);
    chownSync(foreign, nobody, nobody);
    refuses(foreign, /foreign belongs to user 65534, so that somebody else could put sockets there/);
    refuses(join(foreign, 'below/soft'), /foreign belongs to user 65534/);
    const [link, own] = [join(dir, 'foreign-link'), join(dir, 'own')];
    mkdirSync(own);
    symlinkSync(own, link);
    lchownSync(link, nobody, nobody);
    refuses(link, /foreign-link belongs to user 65534/);
    refuses(join(link, 'soft'), /foreign-link belongs to user 65534/);
  });

  test('are made with what is missing above, for their owner to write, and found again through a link', () => {
    const path = join(dir, 'a/b');
    makeRunFolder(path);
    makeRunFolder(path);
    assert.equal(statSync(path).mode & 0o022, 0);
    symlinkSync('a', join(dir, 'to-a'));
    makeRunFolder(join(dir, 'to-a/b'));
    symlinkSync('loop', join(dir, 'loop'));
    assert.throws(() => makeRunFolder(join(dir, 'loop')));
  });
});
