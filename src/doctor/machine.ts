// The machine as probes see it: files and commands. Tests use another root or another PATH.

import { execFile } from 'node:child_process';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isSystemError } from './system-error.ts';

const COMMAND_TIMEOUT_MS = 2000;

export interface CommandOutput {
  readonly isOk: boolean;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Machine {
  /** The text of a file, or null when there is no such file. Throws other errors. */
  readText(path: string): Promise<string | null>;
  /** The names in a directory, or null when there is none. */
  list(path: string): Promise<readonly string[] | null>;
  /**
   * The output of a command, or null when this user cannot run it. Throws when it takes longer than
   * 2 s.
   */
  run(command: string, args: readonly string[]): Promise<CommandOutput | null>;
}

interface MachineOptions {
  /** Where `/proc`, `/sys` and `/dev` are looked for. */
  readonly root?: string;
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly signal?: AbortSignal;
}

export function thisMachine({ root = '/', env = process.env, signal }: MachineOptions = {}): Machine {
  // The PATH of ordinary users lacks the folders of administrators' tools, which everybody may run.
  const commandEnv = { ...env, PATH: `${env.PATH ?? '/usr/bin:/bin'}:/usr/sbin:/sbin`, LC_ALL: 'C' };
  const options = { env: commandEnv, timeout: COMMAND_TIMEOUT_MS, encoding: 'utf8' as const };
  return {
    readText: (path) => absentAsNull(readFile(join(root, path), 'utf8')),
    list: (path) => absentAsNull(readdir(join(root, path))),
    run: (command, args) =>
      new Promise((resolve, reject) => {
        execFile(command, args, { ...options, ...(signal && { signal }) }, (error, stdout, stderr) => {
          if (error === null) resolve({ isOk: true, stdout, stderr });
          else if (isSystemError(error, 'ENOENT', 'EACCES')) resolve(null);
          else if (typeof error.code === 'number') resolve({ isOk: false, stdout, stderr });
          else reject(error.killed ? new Error(`${command} did not end within ${COMMAND_TIMEOUT_MS / 1000} s`) : error);
        });
      }),
  };
}

async function absentAsNull<T>(reading: Promise<T>): Promise<T | null> {
  try {
    return await reading;
  } catch (error) {
    if (isSystemError(error, 'ENOENT', 'ENOTDIR')) return null;
    throw error;
  }
}
