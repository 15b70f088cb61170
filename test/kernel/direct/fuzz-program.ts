// The C program that makes random sequences of socket calls on both ends of TCP connections
// (fuzz/*.c): compiled, run with and without the library, and what two runs say compared.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { globSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { compile } from '../steering/compile.ts';

type Env = Readonly<Record<string, string>>;

/** What a run says: a line for each seed, and how often connections were promoted and demoted. */
interface FuzzRun {
  readonly lines: ReadonlyMap<number, string>;
  readonly counters: Readonly<Record<string, number>>;
}

/** The lines before the first that differs that are shown. */
const LINES_BEFORE = 30;
const LINES_AFTER = 3;

export class FuzzProgram {
  readonly file: string;

  constructor() {
    this.file = compile(globSync(join(import.meta.dirname, 'fuzz/*.c')).sort());
  }

  async run(env: Env, seed: number, count: number): Promise<FuzzRun> {
    const output = await this.#output(env, ['run', String(seed), String(count)]);
    const lines = output.trim().split('\n');
    const words = (lines.pop() ?? '').split(' ');
    const counters = Object.fromEntries(
      words.flatMap((word, index) => (index % 2 === 0 ? [[word, Number(words[index + 1])]] : [])),
    );
    return { lines: new Map(lines.map((line) => [Number(line.split(' ')[0]), line])), counters };
  }

  /** The logs of one sequence around the first difference; null where there is none. */
  async difference(plain: Env, other: Env, seed: number): Promise<string | null> {
    const [left, right] = await Promise.all(
      [plain, other].map(async (env) => (await this.#output(env, ['show', String(seed)])).split('\n')),
    );
    if (left === undefined || right === undefined) return null;
    const first = left.findIndex((line, index) => line !== right[index]);
    const at = first < 0 && right.length > left.length ? left.length : first;
    if (at < 0) return null;
    const same = left.slice(Math.max(0, at - LINES_BEFORE), at).map((line) => `    ${line}`);
    const there = left.slice(at, at + LINES_AFTER).map((line) => `  - ${line}`);
    const here = right.slice(at, at + LINES_AFTER).map((line) => `  + ${line}`);
    return [`seed ${seed}, line ${at + 1} (- plain TCP, + with the library):`, ...same, ...there, ...here].join('\n');
  }

  async #output(env: Env, args: readonly string[]): Promise<string> {
    const child = spawn(this.file, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'inherit'] });
    const ending = new Promise<string>((resolve, reject) => {
      child.once('error', reject);
      child.once('exit', (code, signal) => resolve(signal ?? String(code)));
    });
    const [output, how] = await Promise.all([text(child.stdout), ending]);
    assert.equal(how, '0', `fuzz ${args.join(' ')} ended with ${how}:\n${output}`);
    return output;
  }
}
