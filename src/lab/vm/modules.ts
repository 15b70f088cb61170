// Kernel modules: which ones a guest gets, and which others those need.

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { UnsupportedError } from '../../errors.ts';
import { unpack } from './unpack.ts';

/** Loaded first, for the guest's root, its network card and the port of its agent. */
export const rootModules = ['virtio_pci', 'virtio_console', '9pnet_virtio', '9p', 'overlay'] as const;

/**
 * Loaded while the agent starts. rxe requests crc32 by name when a link is added, when a guest
 * could not load it.
 */
export const networkModules = [
  'virtio_net',
  'dummy',
  'veth',
  'crc32_generic',
  'ib_uverbs',
  'rdma_ucm',
  'ib_umad',
  'rdma_rxe',
] as const;

/** In the image, and loaded if `modules` names them. */
export const extraModules = ['act_bpf', 'bridge', 'cls_bpf', 'sch_ingress', 'sch_netem', 'tcp_bbr', 'tun'] as const;

export interface KernelModule {
  readonly name: string;
  /** Unpacked. */
  readonly content: Uint8Array;
}

/** A module's name has underscores where its file may have hyphens. */
const moduleFile = /^(.+)\.ko(?:\.xz|\.zst)?$/;

/**
 * Finds modules below /lib/modules/VERSION of an unpacked package. Reads a file only when it is
 * needed.
 */
export class ModuleTree {
  readonly #files: ReadonlyMap<string, string>;
  readonly #builtin: ReadonlySet<string>;

  constructor(versionDir: string) {
    const files = readdirSync(versionDir, { recursive: true, encoding: 'utf8' });
    this.#files = new Map(files.flatMap((file) => entryOf(file, join(versionDir, file))));
    this.#builtin = new Set(
      readFileSync(join(versionDir, 'modules.builtin'), 'utf8')
        .split('\n')
        .flatMap((file) => entryOf(file, file))
        .map(([name]) => name),
    );
  }

  /**
   * The modules in loading order: each after those that it needs, without those that are built in.
   */
  withNeeds(names: readonly string[]): readonly KernelModule[] {
    const found = new Map<string, KernelModule>();
    const visit = (name: string): void => {
      if (found.has(name) || this.#builtin.has(name)) return;
      const content = this.#read(name);
      for (const needed of needsOf(content)) visit(needed);
      found.set(name, { name, content });
    };
    for (const name of names) visit(name);
    return [...found.values()];
  }

  #read(name: string): Uint8Array {
    const file = this.#files.get(name);
    if (file === undefined) throw new UnsupportedError(`vm: this kernel has no module ${name}`);
    return unpack(readFileSync(file), `the module ${name}`);
  }
}

function entryOf(path: string, file: string): readonly [string, string][] {
  const name = moduleFile.exec(path.slice(path.lastIndexOf('/') + 1))?.[1];
  return name === undefined ? [] : [[name.replaceAll('-', '_'), file]];
}

/** From `depends=` in the module's .modinfo section, so that no depmod has to read all modules. */
export function needsOf(module: Uint8Array): readonly string[] {
  const text = Buffer.from(module.buffer, module.byteOffset, module.byteLength);
  const key = '\0depends=';
  const at = text.indexOf(key, 0, 'latin1');
  if (at < 0) return [];
  const list = text.toString('latin1', at + key.length, text.indexOf(0, at + key.length));
  return list === '' ? [] : list.split(',').map((name) => name.replaceAll('-', '_'));
}
