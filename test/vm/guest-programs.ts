// Programs for guests, bundled and compiled here: on an emulated processor every file that Node
// loads, and every function that V8 compiles, takes long.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync, copyFileSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { basename, join } from 'node:path';
import { build } from 'esbuild';

const root = join(import.meta.dirname, '../..');
/** Guests see the project, and not our /tmp. */
const parent = join(root, 'build/vm');

/**
 * Node in a guest. V8 that recompiles WebAssembly while it runs (Node's lexer of CommonJS modules,
 * say) crashes now and then on an emulated processor (QEMU 7.2, several threads): in
 * Runtime_WasmTriggerTierUp, before any of our code.
 */
const guestNode: readonly string[] = [process.execPath, '--no-warnings', '--liftoff-only'];

/**
 * Loads programs, so that Node puts what it compiles into its cache. Without arguments, and without
 * the devices of a guest, they end or wait; what they do is of no interest.
 */
const loadScript = `
  for (const event of ['uncaughtException', 'unhandledRejection']) process.on(event, () => {});
  const { setTimeout } = await import('node:timers/promises');
  const files = process.argv.splice(1);
  await Promise.race([Promise.allSettled(files.map((file) => import(file))), setTimeout(1000)]);
  process.exit(0);
`;

/** Packages that are CommonJS have calls of require. */
const requireLine = "const require = process.getBuiltinModule('node:module').createRequire(import.meta.url);";

/** Guests find the programs at the same paths as this host. */
export class GuestPrograms implements Disposable {
  readonly #folder: string;

  /** `files` and all that they import; the programs that they start are to be named, too. */
  static async build(files: readonly string[]): Promise<GuestPrograms> {
    mkdirSync(parent, { recursive: true });
    const programs = new GuestPrograms(mkdtempSync(join(parent, 'programs-')));
    try {
      await programs.#build(files);
      return programs;
    } catch (error) {
      programs[Symbol.dispose]();
      throw error;
    }
  }

  private constructor(folder: string) {
    this.#folder = folder;
  }

  async #build(files: readonly string[]): Promise<void> {
    // Also for programs that run as somebody else than root.
    chmodSync(this.#folder, 0o755);
    // Two folders below this one, as most of the sources are: what they look for from there, they
    // find.
    copyFileSync(join(root, 'package.json'), join(this.#folder, 'package.json'));
    symlinkSync(join(root, 'build'), join(this.#folder, 'build'));
    const { metafile } = await build({
      absWorkingDir: root,
      entryPoints: [...files],
      bundle: true,
      splitting: true,
      format: 'esm',
      platform: 'node',
      target: 'esnext',
      banner: { js: requireLine },
      outdir: join(this.#folder, 'bundles/programs'),
      entryNames: '[name]',
      metafile: true,
      logLevel: 'error',
    });
    const bundles = Object.keys(metafile.outputs).map((file) => join(root, file));
    const [node = '', ...flags] = guestNode;
    const words = [...flags, '--test-name-pattern=^$none', '--input-type=module', '--eval', loadScript, ...bundles];
    const env = { ...process.env, ...this.env };
    const { status } = spawnSync(node, words, { cwd: this.#folder, env, stdio: 'ignore' });
    assert.equal(status, 0);
  }

  /** For the programs: where they find themselves compiled. */
  get env(): Readonly<Record<string, string>> {
    return { NODE_COMPILE_CACHE: join(this.#folder, 'compile-cache') };
  }

  path(file: string): string {
    return join(this.#folder, 'bundles/programs', basename(file).replace(/\.ts$/, '.js'));
  }

  /** The command that runs a program. */
  words(file: string, ...rest: readonly string[]): readonly string[] {
    return [...guestNode, this.path(file), ...rest];
  }

  [Symbol.dispose](): void {
    rmSync(this.#folder, { recursive: true });
  }
}
