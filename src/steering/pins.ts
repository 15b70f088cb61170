// The pins of steering in the BPF file system: a folder for each instance with its maps and BPF
// links, which outlive the process that made them, and in it an empty folder whose name says which
// process serves it.
//
// Names in that file system may have no dots, and files are BPF objects only.

import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, renameSync, rmdirSync, unlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { MillraceError, UnsupportedError, UsageError } from '../errors.ts';
import { pinBpf } from '../native/index.ts';
import { currentOwner, livenessOf, type Owner, ownerToken, parseOwnerToken } from '../system/index.ts';

const mountPoint = '/sys/fs/bpf';
const ownerPrefix = 'owner-';
const asidePattern = /^(?:new|old)_.*_(owner-.*)$/;
const namePattern = /^[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?$/;

function checkInstance(name: string): string {
  if (namePattern.test(name)) return name;
  throw new UsageError(`invalid instance name '${name}': use a-z, 0-9 and '-' (at most 32)`);
}

function parentFolder(): string {
  return join(mountPoint, 'millrace');
}

export function folderOf(instance: string): string {
  return join(parentFolder(), checkInstance(instance));
}

/**
 * Mounts the BPF file system where it is not. Under a lock: a second one on top would hide the pins
 * of whoever was a moment earlier.
 */
function ensureBpfFilesystem(): void {
  const mounts = readFileSync('/proc/self/mounts', 'utf8');
  if (mounts.split('\n').some((line) => line.split(' ')[1] === mountPoint && line.split(' ')[2] === 'bpf')) return;
  const unlessMounted = `grep -q ' ${mountPoint} bpf ' /proc/self/mounts || mount -t bpf bpf ${mountPoint}`;
  try {
    execFileSync('flock', [dirname(mountPoint), 'sh', '-c', unlessMounted], { stdio: 'pipe' });
  } catch (error) {
    throw new UnsupportedError(
      `there is no BPF file system at ${mountPoint}; try as root: mount -t bpf bpf ${mountPoint}`,
      {
        cause: error,
      },
    );
  }
}

/** Objects pinned in a folder of another name, until they are published together. */
export class PinsAside implements Disposable {
  readonly #instance: string;
  readonly #token = `${ownerPrefix}${ownerToken(currentOwner())}`;
  #folder: string | null;

  constructor(instance: string) {
    this.#instance = checkInstance(instance);
    ensureBpfFilesystem();
    this.#folder = join(parentFolder(), `new_${instance}_${this.#token}`);
    try {
      mkdirSync(parentFolder(), { recursive: true });
      removeFolder(this.#folder);
      mkdirSync(this.#folder);
    } catch (error) {
      throw forbidden(`pin steering below ${mountPoint}`, error);
    }
  }

  pin(fd: number, name: string): void {
    if (this.#folder === null) throw new MillraceError('MILLRACE_ERR_CLOSED', 'these pins are published already');
    pinBpf(fd, join(this.#folder, name));
  }

  /** Replaces what the instance had. `isServed`: this process serves it, until it ends. */
  publish(isServed: boolean): void {
    if (this.#folder === null) return;
    const target = folderOf(this.#instance);
    const old = join(parentFolder(), `old_${this.#instance}_${this.#token}`);
    if (isServed) mkdirSync(join(this.#folder, this.#token));
    removeFolder(old);
    try {
      renameSync(target, old);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    }
    renameSync(this.#folder, target);
    this.#folder = null;
    removeFolder(old);
  }

  [Symbol.dispose](): void {
    if (this.#folder !== null) removeFolder(this.#folder);
    this.#folder = null;
  }
}

/** Unpins the BPF links, which detaches them, and the maps. False when there was nothing. */
export function removeInstance(instance: string): boolean {
  return removeFolder(folderOf(instance));
}

export interface PinnedInstance {
  readonly name: string;
  readonly owner: Owner | null;
  /** `none`: it was made to stay without a daemon. */
  readonly daemon: 'alive' | 'dead' | 'unknown' | 'none';
}

export function listInstances(): readonly PinnedInstance[] {
  return entriesOf(parentFolder())
    .filter((name) => namePattern.test(name))
    .map((name) => {
      const token = entriesOf(join(parentFolder(), name)).find((entry) => entry.startsWith(ownerPrefix));
      const owner = token === undefined ? null : parseOwnerToken(token.slice(ownerPrefix.length));
      const daemon = token === undefined ? 'none' : owner === null ? 'unknown' : livenessOf(owner);
      return { name, owner, daemon };
    });
}

/** Removes what dead daemons left. Returns the names of those instances. */
export function sweepInstances(): readonly string[] {
  const swept = listInstances().filter(({ daemon }) => daemon === 'dead');
  for (const { name } of swept) removeInstance(name);
  for (const name of entriesOf(parentFolder())) {
    const token = asidePattern.exec(name)?.[1]?.slice(ownerPrefix.length);
    const owner = token === undefined ? null : parseOwnerToken(token);
    if (owner !== null && livenessOf(owner) === 'dead') removeFolder(join(parentFolder(), name));
  }
  return swept.map(({ name }) => name);
}

function entriesOf(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR') return [];
    throw forbidden(`read ${folder}`, error);
  }
}

function removeFolder(folder: string): boolean {
  const names = entriesOf(folder);
  for (const name of names) {
    const path = join(folder, name);
    try {
      if (name.startsWith(ownerPrefix)) rmdirSync(path);
      else unlinkSync(path);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw forbidden(`remove ${path}`, error);
    }
  }
  try {
    rmdirSync(folder);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false;
    throw forbidden(`remove ${folder}`, error);
  }
}

function forbidden(attempt: string, error: unknown): Error {
  const { code, message } = error as NodeJS.ErrnoException;
  if (code !== 'EACCES' && code !== 'EPERM') return error as Error;
  return new MillraceError('MILLRACE_ERR_PERMISSION', `${attempt}: ${message}; run as root`, { cause: error });
}
