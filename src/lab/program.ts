// Finds programs, starts them inside a cgroup, and collects their output.

import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process';
import { accessSync, constants, statSync } from 'node:fs';
import { delimiter, resolve } from 'node:path';
import { UnsupportedError } from '../errors.ts';

export interface ProgramResult {
  /** Null when a signal ended it. */
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Where execvp() looks when there is no PATH. */
const fallbackPath = '/bin:/usr/bin';
/** The PATH of ordinary users, and of some services, lacks these. */
const systemDirs = '/usr/sbin:/usr/bin:/sbin:/bin';

/**
 * Enters the cgroup before the program starts, so that no child escapes it. Words are passed on
 * without quoting.
 */
const enterScript = 'echo 0 > "$1/cgroup.procs" || exit 126; shift; exec "$@"';

/**
 * As execvp() would: a word with a slash is a path, any other is searched for. Null when there is
 * none to run.
 */
export function findProgram(word: string, path: string = fallbackPath, cwd: string = process.cwd()): string | null {
  const places = word.includes('/') ? [word] : path.split(delimiter).map((dir) => `${dir === '' ? '.' : dir}/${word}`);
  return places.map((place) => resolve(cwd, place)).find(isExecutable) ?? null;
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return statSync(file).isFile();
  } catch {
    return false;
  }
}

export function requireTool(name: string, debianPackage: string): string {
  const found = findProgram(name, `${process.env.PATH ?? ''}:${systemDirs}`);
  if (found !== null) return found;
  throw new UnsupportedError(
    `the lab needs the program ${name}, which is not installed; try: apt-get install ${debianPackage}`,
  );
}

/**
 * The shell and nsenter replace themselves, so signals and the exit status are the program's own.
 */
export function spawnInCgroup(cgroup: string, words: readonly string[], options: SpawnOptions): ChildProcess {
  return spawn('/bin/sh', ['-c', enterScript, 'sh', cgroup, ...words], options);
}

/**
 * Resolves when the program has ended and its output was read; rejects when it was aborted or could
 * not be started.
 */
export async function collect(child: ChildProcess, input = ''): Promise<ProgramResult> {
  const { promise, resolve: settle, reject } = Promise.withResolvers<ProgramResult>();
  const stdout: Buffer[] = [];
  const stderr: Buffer[] = [];
  let failure: Error | null = null;
  child.stdout?.on('data', (chunk: Buffer) => stdout.push(chunk));
  child.stderr?.on('data', (chunk: Buffer) => stderr.push(chunk));
  child.on('error', (error) => {
    failure = error;
    // It was never started, so no other event follows.
    if (child.pid === undefined) reject(error);
  });
  child.on('close', (code, signal) => {
    if (failure !== null) return reject(failure);
    settle({ code, signal, stdout: Buffer.concat(stdout).toString(), stderr: Buffer.concat(stderr).toString() });
  });
  // A program may end without reading its input; its status shows whether it failed.
  child.stdin?.on('error', () => {});
  child.stdin?.end(input);
  return promise;
}
