// Words that are not ours: finds those that docs/glossary.md has a better one for.
//
//   node tools/words.ts            names each line with such a word, and the word to use

import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const root = join(import.meta.dirname, '..');

/** A word as a pattern, and what to say instead. Names in camel case count, too. */
const words: readonly (readonly [pattern: RegExp, instead: string])[] = [
  [/\bliars?\b|\bonLie\b|\b(?:a|the|this|every|each) lie\b/i, 'protocol error'],
  [/\bbells?\b|(?<!door)bellFd\b/i, 'doorbell'],
  [/\bladders?\b/i, 'QP state machine'],
  [/\bclimb(?:s|ed|ing)?\b/, 'modify to RTS'],
  [/\bpatience|Patience\b/, 'spin policy'],
  [/\bdoors?\b|\bDoor\b|[a-z]Door\b/, 'listener or acceptor'],
  [/\bstrangers?\b|Stranger/, 'unsteered connection, or unknown peer'],
  [/\btroubles?\b|Trouble/, 'error'],
  [/\bunlucky\b|\bin vain\b|\bonVain\b/, 'spin miss'],
  [/\bcallers?\b|Caller\b|Callers\b/, 'dialer, client or peer'],
  [/\bcallees?\b/, 'server, acceptor or peer'],
  [/\bcouriers?\b|\bparcels?\b/i, 'file transfer'],
  [/\blent\b/, 'borrowed'],
  [/\b(?:first|second|third) seed\b|\bthe seed's\b|\bseeds' papers\b/, "the paper's title"],
  [/\btable of targets\b/i, "the benchmark's id"],
];

/** History stays as it was written; the glossary and this table name the words. */
const exempt = new Set(['CHANGELOG.md', 'docs/glossary.md', 'tools/words.ts']);

function main(): number {
  const patterns = ['*.ts', '*.mjs', '*.c', '*.h', '*.def', '*.md'];
  const listed = spawnSync('git', ['ls-files', '-co', '--exclude-standard', ...patterns], {
    cwd: root,
    encoding: 'utf8',
  });
  let found = 0;
  for (const file of listed.stdout.split('\n').filter((each) => each !== '' && !exempt.has(each))) {
    const lines = readFileSync(join(root, file), 'utf8').split('\n');
    for (const [index, line] of lines.entries()) {
      for (const [pattern, instead] of words) {
        const match = pattern.exec(line);
        if (match === null) continue;
        found++;
        process.stderr.write(`${file}:${index + 1}: '${match[0]}': say ${instead} (docs/glossary.md)\n`);
      }
    }
  }
  return found === 0 ? 0 : 1;
}

process.exitCode = main();
