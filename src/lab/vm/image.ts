// The image that a guest boots: kernel and initrd, made from Debian's packages and kept in a cache.

import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { UnsupportedError } from '../../errors.ts';
import { requireTool } from '../index.ts';
import { agentFiles, agentSource, type SourceFile } from './agent-files.ts';
import { cachedFolder, defaultCacheDir } from './cache.ts';
import { type CpioEntry, writeCpio } from './cpio.ts';
import { imagePaths, initScript } from './init.ts';
import { fetchKernel, type KernelFiles } from './kernel-package.ts';
import { extraModules, type KernelModule, ModuleTree, networkModules, rootModules } from './modules.ts';
import { vmlinuxOf } from './vmlinux.ts';

export interface Image {
  /** An ELF file, which QEMU starts directly. */
  readonly kernel: string;
  readonly initrd: string;
  /** The kernel's release, as of `uname -r`. */
  readonly release: string;
}

interface ImageOptions {
  readonly cacheDir?: string | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Called before something that takes long. */
  readonly onProgress?: ((message: string) => void) | undefined;
}

const names = { kernel: 'vmlinux', modules: 'modules.cpio', release: 'release', initrd: 'initrd' } as const;
/** Incremented whenever the way in which the files are made changes. */
const recipeVersion = 1;

/** Takes milliseconds if the cache has it; otherwise a download of some 100 MB. */
export async function prepareImage(options: ImageOptions = {}): Promise<Image> {
  const { cacheDir: root = defaultCacheDir(), signal } = options;
  const kernelKey = keyOf([String(recipeVersion), rootModules.join(), networkModules.join(), extraModules.join()]);
  const build = (folder: string): Promise<void> => buildKernel(folder, options);
  const kernelDir = await cachedFolder({ root, kind: 'kernel', key: kernelKey, build, signal });
  const modules = readFileSync(join(kernelDir, names.modules));
  const busybox = readBusybox();
  const initrdKey = keyOf([modules, writeCpio(userEntries(busybox, agentFiles()))]);
  const buildInitrd = async (folder: string): Promise<void> => {
    // The kernel unpacks archives one after the other. Not compressed: the guest would take longer
    // to unpack than to read.
    writeFileSync(join(folder, names.initrd), Buffer.concat([modules, writeCpio(userEntries(busybox, agentSource()))]));
  };
  const initrdDir = await cachedFolder({ root, kind: 'initrd', key: initrdKey, build: buildInitrd, signal });
  return {
    kernel: join(kernelDir, names.kernel),
    initrd: join(initrdDir, names.initrd),
    release: readFileSync(join(kernelDir, names.release), 'utf8').trim(),
  };
}

function keyOf(parts: readonly (string | Uint8Array)[]): string {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(`${part.length}:`).update(part);
  return hash.digest('hex').slice(0, 16);
}

async function buildKernel(folder: string, { signal, onProgress }: ImageOptions): Promise<void> {
  const work = mkdtempSync(join(folder, 'package-'));
  try {
    const files = await fetchKernel(work, { signal, onProgress });
    onProgress?.(`unpacking ${basename(files.modulesDir)}`);
    writeFileSync(join(folder, names.kernel), vmlinuxOf(readFileSync(files.image), files.image));
    writeFileSync(join(folder, names.modules), writeCpio(moduleEntries(files)));
    writeFileSync(join(folder, names.release), `${basename(files.modulesDir)}\n`);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/** The modules, and lists of which to load when. */
function moduleEntries({ modulesDir }: KernelFiles): readonly CpioEntry[] {
  const tree = new ModuleTree(modulesDir);
  const root = tree.withNeeds(rootModules);
  const network = without(tree.withNeeds(networkModules), root);
  const extras = extraModules.map((name) => ({ name, list: without(tree.withNeeds([name]), [...root, ...network]) }));
  const all = new Map(
    [...root, ...network, ...extras.flatMap(({ list }) => list)].map((module) => [module.name, module]),
  );
  return [
    { path: 'etc', kind: 'folder' },
    { path: imagePaths.modules, kind: 'folder' },
    { path: imagePaths.extraModules, kind: 'folder' },
    { path: imagePaths.rootModules, kind: 'file', content: listOf(root) },
    { path: imagePaths.networkModules, kind: 'file', content: listOf(network) },
    ...extras.map(({ name, list }): CpioEntry => {
      return { path: `${imagePaths.extraModules}/${name}`, kind: 'file', content: listOf(list) };
    }),
    ...[...all.values()].map(({ name, content }): CpioEntry => {
      return { path: `${imagePaths.modules}/${name}.ko`, kind: 'file', content };
    }),
  ];
}

function without(modules: readonly KernelModule[], others: readonly KernelModule[]): readonly KernelModule[] {
  const names = new Set(others.map(({ name }) => name));
  return modules.filter(({ name }) => !names.has(name));
}

function listOf(modules: readonly KernelModule[]): string {
  return modules.map(({ name }) => `${name}\n`).join('');
}

function userEntries(busybox: Uint8Array, agent: readonly SourceFile[]): readonly CpioEntry[] {
  return [
    { path: 'bin', kind: 'folder' },
    { path: 'bin/busybox', kind: 'file', content: busybox },
    { path: 'dev', kind: 'folder' },
    // Without this device, process 1 has no output until /dev is mounted.
    { path: 'dev/console', kind: 'characterDevice', device: [5, 1], mode: 0o600 },
    // The shell opens it for background commands, also after /dev has moved to the guest's root.
    { path: 'dev/null', kind: 'characterDevice', device: [1, 3], mode: 0o666 },
    { path: 'init', kind: 'file', content: initScript },
    { path: imagePaths.agent, kind: 'folder' },
    ...agent.map(({ name, text }): CpioEntry => {
      return { path: `${imagePaths.agent}/${name}`, kind: 'file', content: text };
    }),
  ];
}

/** It must be static, because the guest starts it before there are libraries. */
function readBusybox(): Uint8Array {
  const path = requireTool('busybox', 'busybox-static');
  const program = readFileSync(path);
  if (program.includes('/ld-linux-x86-64.so')) {
    throw new UnsupportedError(`vm: ${path} is not linked statically; try: apt-get install busybox-static`);
  }
  return program;
}
