// Creates folders that users name. Node's recursive mkdir never returns where none can be created,
// as below /proc.

import { mkdirSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { MillraceError } from '../errors.ts';

/** Creates a folder and those missing above it. An existing one is fine. */
export function makeFolder(path: string, mode = 0o755): void {
  const folder = resolve(path);
  try {
    make(folder, mode);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    const isForbidden = code === 'EACCES' || code === 'EPERM' || code === 'EROFS';
    const blame = isForbidden ? 'MILLRACE_ERR_PERMISSION' : 'MILLRACE_ERR_USAGE';
    const advice = isForbidden ? '; choose a folder that this user may write to, or run as root' : '';
    throw new MillraceError(blame, `make the folder ${folder}: ${message}${advice}`, { cause: error });
  }
}

function make(folder: string, mode: number): void {
  try {
    mkdirSync(folder, { mode });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EEXIST' && statSync(folder).isDirectory()) return;
    if (code !== 'ENOENT' || dirname(folder) === folder || isFolder(dirname(folder))) throw error;
    make(dirname(folder), mode);
    make(folder, mode);
  }
}

function isFolder(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false;
}
