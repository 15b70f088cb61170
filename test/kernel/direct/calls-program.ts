// The C program that tries functions of the C library on a direct connection (calls/*.c), and the
// list of these functions that the library is compiled from.

import { spawn } from 'node:child_process';
import { globSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { compile } from '../steering/compile.ts';

export type CallKind = 'EMULATED' | 'DEMOTES' | 'PASSES';

const root = join(import.meta.dirname, '../../..');
const rowPattern = /^MR_CALL\((\w+), (EMULATED|DEMOTES|PASSES), /gm;

/** The kind of each function of direct/calls.def. */
export function callKinds(): ReadonlyMap<string, CallKind> {
  const rows = readFileSync(join(root, 'direct/calls.def'), 'utf8').matchAll(rowPattern);
  return new Map([...rows].map(([, name = '', kind]) => [name, kind as CallKind]));
}

export class CallsProgram {
  readonly file: string;

  constructor() {
    // Its peer is an end of the program that makes random calls.
    const shared = globSync(join(import.meta.dirname, 'fuzz/*.c')).filter((file) => basename(file) !== 'main.c');
    this.file = compile([...globSync(join(import.meta.dirname, 'calls/*.c')).sort(), ...shared.sort()]);
  }

  async list(): Promise<string[]> {
    return (await this.#lines({}, ['list'])).sort();
  }

  /** What it says of each name: `ok`, `ok direct`, `absent`, or what was wrong. */
  async run(env: Readonly<Record<string, string>>, kinds: ReadonlyMap<string, CallKind>): Promise<Map<string, string>> {
    const lines = await this.#lines(
      env,
      [...kinds].map(([name, kind]) => `${name}=${kind}`),
    );
    return new Map(lines.map((line) => [line.slice(0, line.indexOf(' ')), line.slice(line.indexOf(' ') + 1)]));
  }

  async #lines(env: Readonly<Record<string, string>>, args: readonly string[]): Promise<string[]> {
    const child = spawn(this.file, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'inherit'] });
    const failure = new Promise<never>((_, reject) => child.once('error', reject));
    return (await Promise.race([text(child.stdout), failure])).trim().split('\n');
  }
}
