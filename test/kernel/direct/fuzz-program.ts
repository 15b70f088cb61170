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

/** What a run says: the log of each seed. */
interface FuzzRun {
  readonly logs: ReadonlyMap<number, readonly string[]>;
  readonly counters: Counters;
}

/** A sequence that differs, and its two logs around the first difference. */
interface Difference {
  readonly seed: number;
  readonly text: string;
}

export interface Comparison {
  /** Those that were played: a run that meets too many that hang does not go on. */
  readonly sequences: number;
  readonly different: readonly Difference[];
  readonly counters: Counters;
}

/** The lines before the first that differs that are shown. */
const LINES_BEFORE = 30;
const LINES_AFTER = 3;

/** Null: they are the same. */
function difference(seed: number, left: readonly string[], right: readonly string[]): Difference | null {
  const length = Math.max(left.length, right.length);
  let at = 0;
  while (at < length && left[at] === right[at]) at++;
  if (at === length) return null;
  const same = left.slice(Math.max(0, at - LINES_BEFORE), at).map((line) => `    ${line}`);
  const there = left.slice(at, at + LINES_AFTER).map((line) => `  - ${line}`);
  const here = right.slice(at, at + LINES_AFTER).map((line) => `  + ${line}`);
  const title = `seed ${seed}, line ${at + 1} (- plain TCP, + with the library):`;
  return { seed, text: [title, ...same, ...there, ...here].join('\n') };
}

/** Each log has a line `= SEED` before it; the last line is `. NAME COUNT NAME COUNT …`. */
function parse(output: string): FuzzRun {
  const logs = new Map<number, string[]>();
  let counters: Counters = {};
  let log: string[] = [];
  for (const line of output.trimEnd().split('\n')) {
    const words = line.split(' ').slice(1);
    if (line.startsWith('= ')) {
      log = [];
      logs.set(Number(words[0]), log);
    } else if (line.startsWith('. ')) {
      const pairs = words.flatMap((word, index) => (index % 2 === 0 ? [[word, Number(words[index + 1])]] : []));
      counters = Object.fromEntries(pairs);
    } else {
      log.push(line);
    }
  }
  return { logs, counters };
}

export class FuzzProgram {
  readonly file: string;

  constructor() {
    this.file = compile(globSync(join(import.meta.dirname, 'fuzz/*.c')).sort());
  }

  /** Plays the sequences `seed`, `seed + 1`, … in both environments at once. */
  async compare(plain: Env, other: Env, seed: number, count: number): Promise<Comparison> {
    const [left, right] = await Promise.all([this.#run(plain, seed, count), this.#run(other, seed, count)]);
    const different = [...right.logs].flatMap(([number, log]) => {
      const found = difference(number, left.logs.get(number) ?? [], log);
      return found === null ? [] : [found];
    });
    return { sequences: right.logs.size, different, counters: right.counters };
  }

  async #run(env: Env, seed: number, count: number): Promise<FuzzRun> {
    const args = ['run', String(seed), String(count)];
    const child = spawn(this.file, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'inherit'] });
    const ending = new Promise<string>((resolve, reject) => {
      child.once('error', reject);
      child.once('exit', (code, signal) => resolve(signal ?? String(code)));
    });
    const [output, how] = await Promise.all([text(child.stdout), ending]);
    assert.equal(how, '0', `fuzz ${args.join(' ')} ended with ${how}:\n${output}`);
    return parse(output);
  }
}
