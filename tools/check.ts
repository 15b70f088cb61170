// Types, lint and format of everything in the repository, one line a tool. `--fix` writes what can
// be fixed by itself.

import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';

const root = join(import.meta.dirname, '..');

interface Check {
  readonly name: string;
  readonly command: readonly string[];
  readonly fix?: readonly string[];
}

function trackedC(): string[] {
  const listed = spawnSync('git', ['ls-files', '-co', '--exclude-standard', '*.c', '*.h'], {
    cwd: root,
    encoding: 'utf8',
  });
  // What was deleted but not committed yet is listed, too.
  return listed.stdout.split('\n').filter((file) => file !== '' && existsSync(join(root, file)));
}

const bin = (name: string): string => join(root, 'node_modules/.bin', name);
const sources = ['src', 'workbench', 'test', 'tools', 'examples'];

const checks: readonly Check[] = [
  { name: 'types (tsc)', command: [bin('tsc'), '--project', 'tsconfig.json'] },
  {
    name: 'lint and format (biome)',
    command: [bin('biome'), 'check', '--error-on-warnings', '.'],
    fix: [bin('biome'), 'check', '--write', '--error-on-warnings', '.'],
  },
  { name: 'promises and cycles (oxlint)', command: [bin('oxlint'), '--type-aware', '--deny-warnings', ...sources] },
  {
    name: 'unused files and exports (knip)',
    command: [process.execPath, 'node_modules/knip/bin/knip.js', '--no-progress'],
  },
  {
    name: 'rooms (tools/rooms.ts)',
    command: [process.execPath, '--no-warnings', 'tools/rooms.ts'],
    fix: [process.execPath, '--no-warnings', 'tools/rooms.ts', '--fix'],
  },
  { name: 'words (tools/words.ts)', command: [process.execPath, '--no-warnings', 'tools/words.ts'] },
  {
    name: 'lines of 100 columns (tools/wrap.ts)',
    command: [process.execPath, '--no-warnings', 'tools/wrap.ts'],
    fix: [process.execPath, '--no-warnings', 'tools/wrap.ts', '--fix'],
  },
  {
    name: 'BPF layouts (bpf-layouts)',
    command: [process.execPath, '--no-warnings', 'tools/bpf-layouts.ts', '--check'],
    fix: [process.execPath, '--no-warnings', 'tools/bpf-layouts.ts'],
  },
  {
    name: 'functions of Direct (direct-calls)',
    command: [process.execPath, '--no-warnings', 'tools/direct-calls.ts', '--check'],
    fix: [process.execPath, '--no-warnings', 'tools/direct-calls.ts'],
  },
  {
    name: 'C format (clang-format)',
    command: ['clang-format-19', '--dry-run', '--Werror', ...trackedC()],
    fix: ['clang-format-19', '-i', ...trackedC()],
  },
];

/** How many failed. */
export function runChecks(fix = false): number {
  let failed = 0;
  for (const { name, command, fix: fixing } of checks) {
    const [program = '', ...args] = (fix ? fixing : undefined) ?? command;
    const result = spawnSync(program, args, { cwd: root, encoding: 'utf8' });
    const isOk = result.status === 0;
    process.stdout.write(`  ${isOk ? '✔' : '✖'} ${name}\n`);
    if (isOk) continue;
    failed++;
    process.stdout.write(`${result.error?.message ?? `${result.stdout}${result.stderr}`}\n`);
  }
  return failed;
}

if (import.meta.main) process.exitCode = runChecks(process.argv.includes('--fix')) === 0 ? 0 : 1;
