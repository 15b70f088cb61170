// The C program that makes random sequences of socket calls on both ends of TCP connections
// (fuzz/*.c): compiled, run with and without the library, and what two runs say compared.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { globSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { compile } from '../steering/compile.ts';

export type Env = Readonly<Record<string, string>>;

/** How often connections were promoted and demoted, and so on. */
type Counters = Readonly<Record<string, number>>;

/** What a run says: a line for each seed. */
interface FuzzRun {
  readonly lines: ReadonlyMap<number, string>;
  readonly counters: Counters;
}

export interface Comparison {
  /** Those that were played: a run that meets too many that hang does not go on. */
  readonly sequences: number;
  /** Their seeds. */
  readonly different: readonly number[];
  readonly counters: Counters;
}

/** The lines before the first that differs that are shown. */
const LINES_BEFORE = 30;
const LINES_AFTER = 3;

export class FuzzProgram {
  readonly file: string;

  constructor() {
    this.file = compile(globSync(join(import.meta.dirname, 'fuzz/*.c')).sort());
  }

  /** Plays the sequences `seed`, `seed + 1`, … in both environments at once. */
  async compare(plain: Env, other: Env, seed: number, count: number): Promise<Comparison> {
    const [left, right] = await Promise.all([this.#run(plain, seed, count), this.#run(other, seed, count)]);
    const different = [...right.lines].filter(([number, line]) => line !== left.lines.get(number));
    return {
      sequences: right.lines.size,
      different: different.map(([number]) => number),
      counters: right.counters,
    };
  }

  /** The logs of one sequence around the first difference. */
  async difference(plain: Env, other: Env, seed: number): Promise<string> {
    const [left, right] = await Promise.all([this.#log(plain, seed), this.#log(other, seed)]);
    const first = left.findIndex((line, index) => line !== right[index]);
    const at = first < 0 && right.length > left.length ? left.length : first;
    if (at < 0) return `seed ${seed}: not again when played alone`;
    const same = left.slice(Math.max(0, at - LINES_BEFORE), at).map((line) => `    ${line}`);
    const there = left.slice(at, at + LINES_AFTER).map((line) => `  - ${line}`);
    const here = right.slice(at, at + LINES_AFTER).map((line) => `  + ${line}`);
    return [`seed ${seed}, line ${at + 1} (- plain TCP, + with the library):`, ...same, ...there, ...here].join('\n');
  }

  async #run(env: Env, seed: number, count: number): Promise<FuzzRun> {
    const output = await this.#output(env, ['run', String(seed), String(count)]);
    const lines = output.trim().split('\n');
    const words = (lines.pop() ?? '').split(' ');
    const counters = Object.fromEntries(
      words.flatMap((word, index) => (index % 2 === 0 ? [[word, Number(words[index + 1])]] : [])),
    );
    return { lines: new Map(lines.map((line) => [Number(line.split(' ')[0]), line])), counters };
  }

  async #log(env: Env, seed: number): Promise<string[]> {
    return (await this.#output(env, ['show', String(seed)])).split('\n');
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
