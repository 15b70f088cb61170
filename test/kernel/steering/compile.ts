// Compiles C programs that the tests run in hosts, with every warning an error. What has been
// compiled stays in the build folder until its sources change.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, globSync, mkdirSync, readFileSync, renameSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';

export type Linking = 'dynamic' | 'static';

const folder = join(import.meta.dirname, '../../../build/test-programs');
const flags = ['-std=gnu17', '-D_GNU_SOURCE', '-O2', '-Wall', '-Wextra', '-Werror', '-pthread'];

/** Returns the program's file, whose name begins with that of the sources' folder. */
export function compile(
  sources: readonly string[],
  linking: Linking = 'dynamic',
  libraries: readonly string[] = [],
): string {
  return build('gcc', [...flags, ...(linking === 'static' ? ['-static'] : [])], sources, linking, libraries);
}

/** The same with musl in place of glibc. */
export function compileMusl(sources: readonly string[]): string {
  return build('musl-gcc', flags, sources, 'musl');
}

/** The same of a BPF program; returns the object. */
export function compileBpf(source: string): string {
  // As set-up compiles them.
  const machine = ['-target', 'bpf', '-mcpu=v3', '-I/usr/include/x86_64-linux-gnu'];
  return build('clang-19', ['-O2', '-g', '-Wall', '-Wextra', '-Werror', ...machine, '-c'], [source], 'bpf');
}

function build(
  compiler: string,
  options: readonly string[],
  sources: readonly string[],
  kind: string,
  libraries: readonly string[] = [],
): string {
  const headers = sources.flatMap((source) => globSync(join(dirname(source), '*.h')));
  const hash = createHash('sha256').update(JSON.stringify([options, libraries, run(compiler, ['--version'])]));
  for (const file of [...new Set([...sources, ...headers])].sort()) hash.update(readFileSync(file));
  const name = `${basename(dirname(sources[0] ?? ''))}-${kind}-${hash.digest('hex').slice(0, 16)}`;
  const program = join(folder, name);
  if (existsSync(program)) return program;
  mkdirSync(folder, { recursive: true });
  // Two files of tests may compile the same at once: each in a file of its own first.
  const draft = `${program}.${process.pid}`;
  run(compiler, [...options, ...sources, ...libraries, '-o', draft]);
  renameSync(draft, program);
  return program;
}

function run(compiler: string, args: readonly string[]): string {
  const { status, stdout, stderr, error } = spawnSync(compiler, args, { encoding: 'utf8', timeout: 60_000 });
  if (error !== undefined) throw error;
  assert.equal(status, 0, stderr);
  return stdout;
}
