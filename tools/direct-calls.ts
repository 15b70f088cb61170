// Writes docs/direct-calls.md: the table of functions that direct/calls.def lists, for people.
// `--check` only compares.

import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const root = join(import.meta.dirname, '..');
const source = 'direct/calls.def';
const target = 'docs/direct-calls.md';

const kinds: Readonly<Record<string, string>> = { EMULATED: 'emulated', DEMOTES: 'demotes', PASSES: 'kernel' };

interface Section {
  readonly title: string;
  /** By kind and reason, in the order of the list. */
  readonly rows: Map<string, { readonly kind: string; readonly reason: string; readonly names: string[] }>;
}

/** A comment of one line begins a section; those before the first call tell of the list itself. */
function sectionsOf(text: string): readonly Section[] {
  const sections: Section[] = [];
  let title = '';
  for (const [index, line] of text.split('\n').entries()) {
    if (line.startsWith('//')) title = line.slice(2).trim();
    if (!line.startsWith('MR_CALL')) continue;
    const [, name, word = '', reason = ''] = /^MR_CALL\((\w+), (\w+), "([^"]+)"\)$/.exec(line) ?? [];
    const kind = kinds[word];
    if (name === undefined || kind === undefined) {
      throw new Error(`${source}:${index + 1}: not MR_CALL(name, kind, "reason") with a kind that is known: ${line}`);
    }
    let section = sections.at(-1);
    if (section?.title !== title) {
      section = { title, rows: new Map() };
      sections.push(section);
    }
    const key = `${kind} ${reason}`;
    const row = section.rows.get(key) ?? { kind, reason, names: [] };
    row.names.push(name);
    section.rows.set(key, row);
  }
  return sections;
}

function sectionText({ title, rows }: Section): string {
  const lines = [...rows.values()].map(
    ({ kind, reason, names }) => `| ${names.map((name) => `\`${name}\``).join(', ')} | ${kind} | ${reason} |`,
  );
  return `## ${title}\n\n| function | | what, or why |\n|---|---|---|\n${lines.join('\n')}\n`;
}

const text = `# Functions and direct connections

Every function of glibc and musl that takes a descriptor which may be a socket, or that hands
descriptors to another program. Written by \`tools/direct-calls.ts\` from \`direct/calls.def\`, which
the library is compiled from; [direct.md](direct.md) tells what a direct connection is.

| | |
|---|---|
| emulated | the connection stays direct, and the function does what the kernel's does |
| demotes | the connections that it concerns go back to TCP first; then the C library's own function does the work |
| kernel | the library does nothing: the kernel's socket gives the right answer |

A function that is emulated may demote for some of its arguments; then the last column says for
which.

${sectionsOf(readFileSync(join(root, source), 'utf8'))
  .map(sectionText)
  .join('\n')}`;

if (process.argv.includes('--check')) {
  if (readFileSync(join(root, target), 'utf8') !== text) {
    process.stderr.write(`${target} is not what ${source} says; run: node tools/direct-calls.ts\n`);
    process.exitCode = 1;
  }
} else {
  writeFileSync(join(root, target), text);
}
