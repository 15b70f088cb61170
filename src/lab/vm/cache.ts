// A cache of folders that are costly to build: built aside, published by one rename, checked
// against their sums before use.

import { createHash, randomBytes } from 'node:crypto';
import {
  closeSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { currentOwner, livenessOf, makeFolder, ownerToken, parseOwnerToken } from '../../system/index.ts';
import { lockFile } from './lock.ts';

interface CacheRequest {
  /** The folder of all entries. */
  readonly root: string;
  /** Of the entries of one kind, only the last few that were used are kept. */
  readonly kind: string;
  /** A hexadecimal hash of everything that the content depends on. */
  readonly key: string;
  /** Fills an empty folder with files. */
  readonly build: (folder: string) => Promise<void>;
  readonly signal?: AbortSignal | undefined;
}

interface FileSum {
  readonly sizeBytes: number;
  readonly mtimeMs: number;
  readonly sha256: string;
}

const manifestName = 'manifest.json';
const manifestVersion = 1;
const temporaryPrefix = 'new.';
const keptPerKind = 2;

/** The machine's cache for root, the user's own otherwise. */
export function defaultCacheDir(env: NodeJS.ProcessEnv = process.env, uid: number = process.getuid?.() ?? 0): string {
  if (uid === 0) return '/var/cache/millrace/vm';
  const home = env.XDG_CACHE_HOME;
  return join(home === undefined || home === '' ? join(homedir(), '.cache') : home, 'millrace/vm');
}

/**
 * Resolves to the entry's folder. If several processes ask at once, one builds and the others wait
 * for it.
 */
export async function cachedFolder(request: CacheRequest): Promise<string> {
  const { root, kind, key, build, signal } = request;
  const folder = join(root, `${kind}-${key}`);
  if (isIntact(folder)) return use(folder);
  makeFolder(root);
  await using _lock = await lockFile(join(root, `${kind}.lock`), signal);
  if (isIntact(folder)) return use(folder);
  removeRemains(root);
  const aside = join(root, `${temporaryPrefix}${randomBytes(4).toString('hex')}.${ownerToken(currentOwner())}`);
  mkdirSync(aside);
  try {
    await build(aside);
    signal?.throwIfAborted();
    seal(aside);
    // A damaged entry may be in its place.
    rmSync(folder, { recursive: true, force: true });
    renameSync(aside, folder);
  } finally {
    rmSync(aside, { recursive: true, force: true });
  }
  prune(root, kind);
  return folder;
}

/** Sets the time of last use, by which entries are kept. */
function use(folder: string): string {
  try {
    utimesSync(folder, new Date(), new Date());
  } catch {
    // The entry belongs to another user; only the uses of that user count.
  }
  return folder;
}

function seal(folder: string): void {
  const files: Record<string, FileSum> = {};
  for (const name of readdirSync(folder)) {
    const path = join(folder, name);
    sync(path);
    const { size, mtimeMs } = statSync(path);
    files[name] = { sizeBytes: size, mtimeMs, sha256: sumOf(path) };
  }
  const manifest = join(folder, manifestName);
  writeFileSync(manifest, `${JSON.stringify({ version: manifestVersion, files }, null, 2)}\n`);
  sync(manifest);
}

/**
 * Files are synced before the rename, so that a crash does not leave a published folder with empty
 * files.
 */
function sync(path: string): void {
  const fd = openSync(path, 'r+');
  try {
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}

/**
 * Reads the content of a file only if its size is right and its time is not, as after a copy or a
 * restored backup.
 */
function isIntact(folder: string): boolean {
  try {
    const files = Object.entries(readManifest(folder));
    return files.length > 0 && files.every(([name, sum]) => matches(join(folder, name), sum));
  } catch {
    return false;
  }
}

function matches(path: string, { sizeBytes, mtimeMs, sha256 }: FileSum): boolean {
  const stat = statSync(path);
  if (!stat.isFile() || stat.size !== sizeBytes) return false;
  return stat.mtimeMs === mtimeMs || sumOf(path) === sha256;
}

/** Throws on anything but a manifest of this version. */
function readManifest(folder: string): Record<string, FileSum> {
  const value: unknown = JSON.parse(readFileSync(join(folder, manifestName), 'utf8'));
  const { version, files } = value as { version?: unknown; files?: Record<string, FileSum> };
  if (version !== manifestVersion || files === undefined) throw new Error('another version');
  return files;
}

function sumOf(path: string): string {
  return createHash('sha256').update(readFileSync(path)).digest('hex');
}

/**
 * Removes what killed builders left. Other kinds may be built at the same time, so the owner
 * decides.
 */
function removeRemains(root: string): void {
  for (const name of readdirSync(root)) {
    if (!name.startsWith(temporaryPrefix)) continue;
    const owner = parseOwnerToken(name.slice(name.indexOf('.', temporaryPrefix.length) + 1));
    if (owner !== null && livenessOf(owner) === 'dead') rmSync(join(root, name), { recursive: true, force: true });
  }
}

function prune(root: string, kind: string): void {
  const old = readdirSync(root)
    .filter((name) => name.startsWith(`${kind}-`))
    .map((name) => ({ path: join(root, name), usedMs: statSync(join(root, name)).mtimeMs }))
    .sort((a, b) => b.usedMs - a.usedMs)
    .slice(keptPerKind);
  for (const { path } of old) rmSync(path, { recursive: true, force: true });
}
