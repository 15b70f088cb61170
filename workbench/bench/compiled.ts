// The C of the bench (workbench/bench/c): compiled when it is needed, and again when its source is
// newer.

import { execFile } from 'node:child_process';
import { mkdir, rename, stat } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { UnsupportedError } from '../../src/errors.ts';

const flags = ['-O2', '-Wall', '-Wextra', '-Werror', '-D_GNU_SOURCE'];
const kinds = { program: { flags: [], end: '' }, library: { flags: ['-shared', '-fPIC'], end: '.so' } } as const;
const buildDir = fileURLToPath(new URL('../../build/bench', import.meta.url));

/** The file of that program, or of that library that programs are started with. */
export async function compiled(
  name: string,
  signal: AbortSignal,
  kind: keyof typeof kinds = 'program',
): Promise<string> {
  const source = fileURLToPath(new URL(`./c/${name}.c`, import.meta.url));
  const file = `${buildDir}/${name}${kinds[kind].end}`;
  const [from, to] = await Promise.all([stat(source), stat(file).catch(() => undefined)]);
  if (to !== undefined && to.mtimeMs > from.mtimeMs) return file;
  const aside = `${file}.${process.pid}`;
  await mkdir(buildDir, { recursive: true });
  try {
    await promisify(execFile)('cc', [...flags, ...kinds[kind].flags, source, '-o', aside], { signal });
  } catch (error) {
    signal.throwIfAborted();
    throw new UnsupportedError(`compile the C of the bench: ${name}.c failed; install the Debian package gcc`, {
      cause: error,
    });
  }
  await rename(aside, file);
  return file;
}
