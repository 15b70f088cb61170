// Gets Debian's kernel: chooses a package that apt knows, downloads it, and unpacks it into a
// folder.

import { spawn } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { MillraceError, UnsupportedError } from '../../errors.ts';
import { collect, findProgram, type ProgramResult, requireTool } from '../index.ts';

export interface KernelFiles {
  /** The bzImage. */
  readonly image: string;
  /** /lib/modules/VERSION of the package. */
  readonly modulesDir: string;
}

interface FetchOptions {
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((message: string) => void) | undefined;
}

/**
 * Kernel series, the preferred one first. The cloud and rt flavours do not match, since they have
 * neither rxe nor 9p.
 */
const series = [/^linux-image-6\.12\.\d+\S*-amd64$/, /^linux-image-6\.1\.0-\d+-amd64$/] as const;
const otherFlavour = /-(?:cloud|rt)-amd64$|-unsigned$/;

/** The newest package of the first series that apt knows, or null. */
export function chooseKernel(packages: readonly string[]): string | null {
  const compare = new Intl.Collator('en', { numeric: true }).compare;
  for (const pattern of series) {
    const [newest] = packages
      .filter((name) => pattern.test(name) && !otherFlavour.test(name))
      .sort((a, b) => compare(b, a));
    if (newest !== undefined) return newest;
  }
  return null;
}

/**
 * `folder` must be empty. If apt knows no kernel, or one that the archive has replaced since, its
 * lists are updated once: containers come without lists, and old machines with old ones.
 */
export async function fetchKernel(folder: string, { signal, onProgress }: FetchOptions = {}): Promise<KernelFiles> {
  if (findProgram('apt-get', process.env.PATH) === null) {
    throw new UnsupportedError('vm: the guest’s kernel comes from Debian’s packages, and there is no apt-get here');
  }
  const known = await knownKernel(signal);
  const download = async (name: string): Promise<void> => {
    onProgress?.(`downloading ${name}, some 100 MB`);
    await toolOk(`download ${name}`, 'apt-get', 'apt', ['download', '-qq', name], { cwd: folder, signal });
  };
  const isThere = known !== null && (await succeeds(download(known), signal));
  const name = isThere ? known : await freshKernel(signal, onProgress);
  if (!isThere) await download(name);
  const deb = readdirSync(folder).find((file) => file.endsWith('.deb'));
  if (deb === undefined) throw failure(`download ${name}`, 'apt-get left no package');
  await toolOk(`unpack ${name}`, 'dpkg-deb', 'dpkg', ['--extract', deb, 'root'], { cwd: folder, signal });
  const root = join(folder, 'root');
  // In Debian 13 /lib is a part of /usr.
  const lib = readdirSync(root).includes('lib') ? join(root, 'lib') : join(root, 'usr/lib');
  return { image: only(join(root, 'boot'), /^vmlinuz-/, name), modulesDir: only(join(lib, 'modules'), /./, name) };
}

/** The packages that apt knows without an update. */
async function knownKernel(signal?: AbortSignal): Promise<string | null> {
  const { stdout } = await tool('apt-cache', 'apt', ['pkgnames', 'linux-image-6.1'], { signal });
  return chooseKernel(stdout.split('\n'));
}

async function succeeds(attempt: Promise<void>, signal?: AbortSignal): Promise<boolean> {
  try {
    await attempt;
    return true;
  } catch {
    signal?.throwIfAborted();
    return false;
  }
}

async function freshKernel(signal?: AbortSignal, onProgress?: (message: string) => void): Promise<string> {
  onProgress?.('asking apt for its lists');
  const { code, stderr } = await tool('apt-get', 'apt', ['update', '-qq'], { signal });
  const found = await knownKernel(signal);
  if (found !== null) return found;
  const wanted = 'linux-image-6.12.*-amd64 or linux-image-6.1.0-*-amd64';
  const reason = code === 0 ? '' : ` (apt-get update: ${firstComplaint(stderr)})`;
  throw new UnsupportedError(`vm: apt knows no kernel package ${wanted}${reason}`);
}

function only(folder: string, pattern: RegExp, what: string): string {
  const [name] = readdirSync(folder).filter((entry) => pattern.test(entry));
  if (name === undefined) throw failure(`unpack ${what}`, `there is nothing in ${folder}`);
  return join(folder, name);
}

interface ToolOptions {
  readonly cwd?: string;
  readonly signal?: AbortSignal | undefined;
}

async function tool(
  name: string,
  debianPackage: string,
  args: readonly string[],
  options: ToolOptions,
): Promise<ProgramResult> {
  const { cwd, signal } = options;
  const child = spawn(requireTool(name, debianPackage), args, {
    env: { ...process.env, LC_ALL: 'C' },
    stdio: ['ignore', 'pipe', 'pipe'],
    ...(cwd === undefined ? {} : { cwd }),
    ...(signal === undefined ? {} : { signal }),
  });
  return collect(child);
}

async function toolOk(
  attempt: string,
  name: string,
  debianPackage: string,
  args: readonly string[],
  options: ToolOptions,
): Promise<void> {
  const { code, stderr } = await tool(name, debianPackage, args, options);
  if (code !== 0) throw failure(attempt, firstComplaint(stderr) || `${name} ended with status ${code}`);
}

/** Without warnings: apt prints one for folders that its download user cannot write to. */
function firstComplaint(stderr: string): string {
  return stderr.split('\n').find((line) => line !== '' && !line.startsWith('W:')) ?? '';
}

function failure(attempt: string, reason: string): MillraceError {
  return new MillraceError('MILLRACE_ERR_FAILED', `vm: ${attempt}: ${reason}`);
}
