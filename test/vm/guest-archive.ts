// Programs for guests, compiled and in one archive: stripping types takes long in a guest, and so does every file of the host's.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const root = join(import.meta.dirname, '../..');
/** Guests see the project, and not our /tmp. */
const parent = join(root, 'build/vm');

export interface Archive extends Disposable {
  /** For tar. In it, files have their places below the project, and the addon and the BPF objects are where they look for them. */
  readonly path: string;
}

/** `files` and all that they import; what they start is to be named, too. They may import nothing of others' packages. */
export function buildArchive(files: readonly string[]): Archive {
  mkdirSync(parent, { recursive: true });
  const folder = mkdtempSync(join(parent, 'archive-'));
  using undo = new DisposableStack();
  undo.defer(() => rmSync(folder, { recursive: true }));
  const [project, content, path] = ['tsconfig.json', 'content', 'content.tar'].map((name) => join(folder, name));
  assert.ok(project !== undefined && content !== undefined && path !== undefined);
  const compilerOptions = { noEmit: false, allowImportingTsExtensions: false, noCheck: true, rootDir: root };
  const config = {
    extends: join(root, 'tsconfig.json'),
    compilerOptions: { ...compilerOptions, outDir: content },
    include: [],
    files: files.map((file) => join(root, file)),
  };
  writeFileSync(project, JSON.stringify(config));
  run(join(root, 'node_modules/.bin/tsc'), ['--project', project]);
  copyFileSync(join(root, 'package.json'), join(content, 'package.json'));
  symlinkSync(join(root, 'build'), join(content, 'build'));
  run('tar', ['-cf', path, '-C', content, '.']);
  const all = undo.move();
  return { path, [Symbol.dispose]: () => all.dispose() };
}

function run(program: string, words: readonly string[]): void {
  const { status, stdout, stderr } = spawnSync(program, words, { encoding: 'utf8' });
  assert.equal(status, 0, `${program}: ${stdout}${stderr}`);
}
