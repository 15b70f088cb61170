// The millrace command of this checkout in a few files: as sources it is hundreds of modules, and
// tests start it hundreds of times. To load what `millrace up` needs takes 0.5 s of a processor
// from sources, and 0.2 s from these.

import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { OutputFile, Plugin } from 'esbuild';

const root = join(import.meta.dirname, '..');
const folder = join(root, 'build/command');
/** How long bundles of earlier sources stay. */
const KEPT_MS = 24 * 60 * 60 * 1000;
const command = 'workbench/cli/bin.ts';
/** Each is a thread of the command. */
const threads = [
  'src/lane/worker.ts',
  'src/remoting/backend/threads/guest-worker.ts',
  'src/vortex/net/engine/engine.ts',
];
/** What starts a thread looks for its program beside itself, and knows both kinds. */
const startsThread = "import.meta.url.endsWith('.ts')";
/** Packages that are CommonJS have calls of require. */
const requireLine = "const require = process.getBuiltinModule('node:module').createRequire(import.meta.url);";

/** Modules find files by where they are themselves: they are told where their source is. */
const places: Plugin = {
  name: 'places',
  setup: (build) => {
    build.onLoad({ filter: /\.ts$/ }, ({ path }) => {
      const text = readFileSync(path, 'utf8');
      if (text.includes(startsThread)) return { contents: text, loader: 'ts' };
      const known = { url: pathToFileURL(path).href, dirname: dirname(path), filename: path };
      const contents = text.replaceAll(/\bimport\.meta\.(url|dirname|filename)\b/g, (_, name: keyof typeof known) =>
        JSON.stringify(known[name]),
      );
      return { contents, loader: 'ts' };
    });
  },
};

/** Returns the file that Node is to run in place of the command's source. */
export async function bundleCommand(): Promise<string> {
  // Only here: tests of the runner have no packages.
  const { build } = await import('esbuild');
  const { outputFiles } = await build({
    absWorkingDir: root,
    entryPoints: [command, ...threads],
    bundle: true,
    splitting: true,
    format: 'esm',
    platform: 'node',
    target: 'esnext',
    banner: { js: requireLine },
    plugins: [places],
    outdir: folder,
    entryNames: '[name]',
    logLevel: 'error',
    write: false,
  });
  const hash = createHash('sha256');
  for (const { path, contents } of outputFiles) hash.update(basename(path)).update(contents);
  const made = join(folder, hash.digest('hex').slice(0, 16));
  if (!existsSync(made)) publish(outputFiles, made);
  return join(made, `${basename(command, '.ts')}.js`);
}

/**
 * By one rename, and beside earlier ones: a run of tests that goes on while sources change has its
 * own.
 */
function publish(files: readonly OutputFile[], made: string): void {
  const aside = `${made}.${process.pid}`;
  mkdirSync(aside, { recursive: true });
  for (const { path, contents } of files) writeFileSync(join(aside, basename(path)), contents);
  try {
    renameSync(aside, made);
  } catch (error) {
    rmSync(aside, { recursive: true });
    // Unless another run has made the same at once.
    if (!existsSync(made)) throw error;
  }
  for (const name of readdirSync(folder)) {
    const old = join(folder, name);
    const { mtimeMs } = statSync(old, { throwIfNoEntry: false }) ?? { mtimeMs: Date.now() };
    if (Date.now() - mtimeMs > KEPT_MS) rmSync(old, { recursive: true, force: true });
  }
}

// The path alone, for whoever starts it so.
if (import.meta.main) process.stdout.write(`${await bundleCommand()}\n`);
