// Comments and Markdown wrap at 100 columns: checks that they do, and rewraps what does not.
//
//   node tools/wrap.ts            names each line that is too long
//   node tools/wrap.ts --fix      rewraps the paragraphs with such lines

import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const WIDTH = 100;
const root = join(import.meta.dirname, '..');

/** A line of prose as a paragraph sees it: what stands before its words, and its words. */
interface ProseLine {
  readonly prefix: string;
  /** What stands before the words of the lines after it. */
  readonly rest: string;
  readonly text: string;
}

const isTooLong = (line: string): boolean => Array.from(line).length > WIDTH;

/** Words as lines of at most 100 columns; a word that is longer than that has a line to itself. */
function fill(text: string, first: string, rest: string): string[] {
  const lines: string[] = [];
  let line = first;
  let isEmpty = true;
  for (const word of text.split(/\s+/).filter((each) => each !== '')) {
    const next = isEmpty ? `${line}${word}` : `${line} ${word}`;
    if (!isEmpty && isTooLong(next)) {
      lines.push(line);
      line = `${rest}${word}`;
    } else {
      line = next;
    }
    isEmpty = false;
  }
  return [...lines, line];
}

/**
 * Rewraps each paragraph that has a line that is too long, from that line on. `proseOf` says what a
 * line is: prose with its prefix, or undefined for what must stay as it is. `continues` says
 * whether a line goes on with the paragraph before.
 */
function rewrap(
  lines: readonly string[],
  proseOf: (line: string, index: number) => ProseLine | undefined,
  continues: (line: ProseLine, before: ProseLine) => boolean,
): string[] {
  const result: string[] = [];
  for (let index = 0; index < lines.length; index++) {
    const line = lines[index] ?? '';
    const prose = isTooLong(line) ? proseOf(line, index) : undefined;
    if (prose === undefined) {
      result.push(line);
      continue;
    }
    let text = prose.text;
    let rest = prose.rest;
    for (;;) {
      const next = proseOf(lines[index + 1] ?? '', index + 1);
      if (next === undefined || next.text === '' || !continues(next, prose)) break;
      rest = next.rest;
      text += ` ${next.text}`;
      index++;
    }
    result.push(...fill(text, prose.prefix, rest));
  }
  return result;
}

/** Tables, code, headings and lines that begin with a tag stay as they are. */
export function wrapMarkdown(text: string): string {
  let isCode = false;
  const code = text.split('\n').map((line) => {
    const isFence = /^\s*(```|~~~)/.test(line);
    if (isFence) isCode = !isCode;
    return isFence || isCode;
  });
  const proseOf = (line: string, index: number): ProseLine | undefined => {
    if (code[index] !== false || /^\s*(\||#|<|$)/.test(line)) return undefined;
    const [, prefix = '', words = ''] = /^(\s*(?:[-*] |\d+\. |> )?)(.*)$/.exec(line) ?? [];
    return { prefix, rest: prefix.replace(/[-*]|\d+\./, (mark) => ' '.repeat(mark.length)), text: words };
  };
  // A line with a mark of its own is the next item of a list.
  const continues = ({ prefix }: ProseLine, before: ProseLine): boolean =>
    prefix.trim() === '' || (prefix.trim() === '>' && before.prefix.trim() === '>');
  return rewrap(text.split('\n'), proseOf, continues).join('\n');
}

/**
 * Comments that stand alone on their lines, and one-line comments behind code, which move before
   it.
 */
export function wrapComments(text: string): string {
  const lines = text.split('\n').flatMap(separate);
  const proseOf = (line: string): ProseLine | undefined => {
    const [, prefix, words = ''] = /^(\s*(?:\/\/|\*) )(?! )(.*)$/.exec(line) ?? [];
    if (prefix === undefined || /^(biome-ignore|oxlint-disable|@ts-|SPDX|\|)/.test(words) || words.endsWith('*/')) {
      return undefined;
    }
    return { prefix, rest: prefix, text: words };
  };
  const continues = ({ prefix, text: words }: ProseLine, before: ProseLine): boolean =>
    prefix === before.prefix && !/^(?:[-*] |\d+\. |@)/.test(words);
  return rewrap(lines, proseOf, continues).join('\n');
}

/** A long line with a comment as the lines it should be, for `rewrap` to fill. */
function separate(line: string): string[] {
  if (!isTooLong(line)) return [line];
  const block = /^(\s*)\/\*\* (.*) \*\/$/.exec(line);
  if (block !== null) return [`${block[1]}/**`, `${block[1]} * ${block[2]}`, `${block[1]} */`];
  const behind = /^(\s*)([^\s/*].*?\S)\s+\/\/ ((?:(?!\/\/|['"`]).)*)$/.exec(line);
  if (behind !== null && !/^(biome-ignore|oxlint-disable)/.test(behind[3] ?? '')) {
    return [`${behind[1]}// ${behind[3]}`, `${behind[1]}${behind[2]}`];
  }
  return [line];
}

/** What is wrapped, by its kind. */
function filesOf(...patterns: readonly string[]): string[] {
  const listed = spawnSync('git', ['ls-files', '-co', '--exclude-standard', ...patterns], {
    cwd: root,
    encoding: 'utf8',
  });
  return listed.stdout.split('\n').filter((file) => file !== '' && existsSync(join(root, file)));
}

function main(isFix: boolean): number {
  let failed = 0;
  const visit = (file: string, wrap: (text: string) => string): void => {
    const text = readFileSync(join(root, file), 'utf8');
    const wrapped = wrap(text);
    if (wrapped === text) return;
    if (isFix) {
      writeFileSync(join(root, file), wrapped);
      return;
    }
    failed++;
    const [before, after] = [text.split('\n'), wrapped.split('\n')];
    const line = before.findIndex((each, index) => each !== after[index]);
    process.stderr.write(`${file}:${line + 1}: a line of more than ${WIDTH} columns; run: npm run format\n`);
  };
  for (const file of filesOf('*.md')) visit(file, wrapMarkdown);
  for (const file of filesOf('*.ts', '*.mjs', '*.c', '*.h', '*.def')) visit(file, wrapComments);
  return failed === 0 ? 0 : 1;
}

if (import.meta.main) process.exitCode = main(process.argv.includes('--fix'));
