// Programs for guests, compiled and in one archive: stripping types takes long in a guest, and so
// does every file of the host's.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Guest } from '../../src/lab/vm/index.ts';

const root = join(import.meta.dirname, '../..');
/** Guests see the project, and not our /tmp. */
const parent = join(root, 'build/vm');
/** Where guests have what was in an archive. */
const guestFolder = '/tmp/millrace';

/**
 * Node in a guest. V8 that recompiles WebAssembly while it runs (Node's lexer of CommonJS modules,
 * say) crashes now and then on an emulated processor (QEMU 7.2, several threads): in
 * Runtime_WasmTriggerTierUp, before any of our code.
 */
export const guestNode: readonly string[] = [process.execPath, '--no-warnings', '--liftoff-only'];

/** Compiling takes long on an emulated processor; this way each file is compiled once. */
export const guestEnv = { NODE_COMPILE_CACHE: '/tmp/compile-cache' };

export interface Archive extends Disposable {
  /**
   * For tar. In it, files have their places below the project, and packages, the addon and the BPF
   * objects are where they are looked for.
   */
  readonly path: string;
}

/** Where a guest that has unpacked an archive has one of its files. */
export function compiledPath(file: string): string {
  return join(guestFolder, file.replace(/\.ts$/, '.js'));
}

/** Node with one of the programs of an archive that was unpacked. */
export function compiledWords(file: string, ...rest: readonly string[]): readonly string[] {
  return [...guestNode, compiledPath(file), ...rest];
}

export async function unpackArchive(guest: Guest, archive: Archive): Promise<void> {
  await guest.runOk(['sh', '-c', `mkdir ${guestFolder} && tar -xf ${archive.path} -C ${guestFolder}`]);
}

/** `files` and all that they import; what they start is to be named, too. */
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
  for (const name of ['build', 'node_modules']) symlinkSync(join(root, name), join(content, name));
  run('tar', ['-cf', path, '-C', content, '.']);
  const all = undo.move();
  return { path, [Symbol.dispose]: () => all.dispose() };
}

function run(program: string, words: readonly string[]): void {
  const { status, stdout, stderr } = spawnSync(program, words, { encoding: 'utf8' });
  assert.equal(status, 0, `${program}: ${stdout}${stderr}`);
}
