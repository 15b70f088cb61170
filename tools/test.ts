// Runs the tests tier by tier and says per tier what passed, failed and was skipped, and why.
//
//   npm test                      everything, checks first
//   npm test -- kernel e2e        these tiers
//   npm test -- src/native/       the files of any tier whose path starts so

import { spawnSync } from 'node:child_process';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import type { EventData } from 'node:test';
import { run } from 'node:test';
import { inspect } from 'node:util';
import { runChecks } from './check.ts';

const root = join(import.meta.dirname, '..');
process.chdir(root);
// Each file of tests is a process and starts others: what one has stripped of types and compiled, the others need not.
process.env.NODE_COMPILE_CACHE ??= join(root, 'build/compile-cache');

interface Tier {
  readonly name: string;
  readonly files: readonly string[];
  /** Files at once. Tiers that measure or share the machine run one at a time, but for files that say otherwise. */
  readonly concurrency: number;
  readonly env?: Readonly<Record<string, string>>;
}

interface Tally {
  passed: number;
  failed: number;
  readonly skipped: string[];
}

function tiers(): Tier[] {
  const unit = globSync('{src,workbench,tools}/**/*.test.ts').sort();
  const inFolder = readTierFolders();
  const sanitized = [...globSync('src/native/*.test.ts'), ...globSync('test/kernel/bpf*.test.ts')].sort();
  return [
    { name: 'unit', files: unit, concurrency: 2 },
    { name: 'sanitizer', files: sanitized, concurrency: 2, env: sanitizerEnvironment() },
    ...inFolder,
  ];
}

/** Each folder of test/ is a tier. */
function readTierFolders(): Tier[] {
  const order = ['kernel', 'vm', 'e2e'];
  return order
    .filter((name) => existsSync(join('test', name)))
    .map((name) => ({ name, files: globSync(`test/${name}/**/*.test.ts`).sort(), concurrency: 1 }));
}

/** The native tests again, against the addon built with AddressSanitizer and UndefinedBehaviorSanitizer. */
function sanitizerEnvironment(): Record<string, string> {
  const runtime = spawnSync('cc', ['-print-file-name=libasan.so'], { encoding: 'utf8' }).stdout.trim();
  return {
    MILLRACE_ADDON: join(root, 'build/asan/millrace.node'),
    LD_PRELOAD: runtime,
    // Leaks are counted by the tests themselves: V8 keeps memory until the end on purpose.
    ASAN_OPTIONS: 'detect_leaks=0,abort_on_error=1',
    UBSAN_OPTIONS: 'print_stacktrace=1',
  };
}

/** In the first lines of a file of a tier that runs one at a time: it measures nothing, and mostly waits. */
const besideOthers = /^\/\/ Runs beside other files/m;
const HEAD_BYTES = 1000;

/** First what may run two at a time, then the rest. */
function groupsOf({ files, concurrency }: Tier): readonly { files: string[]; concurrency: number }[] {
  if (concurrency > 1) return [{ files: [...files], concurrency }];
  const isShared = (file: string): boolean => besideOthers.test(readFileSync(file, 'utf8').slice(0, HEAD_BYTES));
  const shared = files.filter(isShared);
  const alone = files.filter((file) => !shared.includes(file));
  return [
    { files: shared, concurrency: 2 },
    { files: alone, concurrency: 1 },
  ].filter((group) => group.files.length > 0);
}

async function runTier(tier: Tier): Promise<Tally> {
  const tally: Tally = { passed: 0, failed: 0, skipped: [] };
  const perFile = new Map<string, { tests: number; failed: number; ms: number }>();
  const previous = { ...process.env };
  Object.assign(process.env, tier.env);
  // The children inherit the environment when they start, one after the other: restore it only at the end.
  try {
    for (const group of groupsOf(tier)) {
      const stream = run({ ...group, timeout: 300_000 });
      stream.on('test:pass', (data) => count(data, false));
      stream.on('test:fail', (data) => count(data, true));
      stream.on('test:stderr', ({ message }) => void process.stderr.write(message));
      for await (const _ of stream);
    }
  } finally {
    for (const name of Object.keys(tier.env ?? {})) {
      if (previous[name] === undefined) delete process.env[name];
      else process.env[name] = previous[name];
    }
  }
  for (const [file, { tests, failed, ms }] of [...perFile].sort(([a], [b]) => a.localeCompare(b))) {
    const seconds = (ms / 1000).toFixed(1).padStart(6);
    process.stdout.write(`  ${failed === 0 ? '✔' : '✖'} ${seconds} s  ${String(tests).padStart(4)} tests  ${file}\n`);
  }
  return tally;

  function count(data: EventData.TestPass | EventData.TestFail, isFailure: boolean): void {
    if (data.details.type === 'suite') {
      // A suite fails because a test in it did, unless its own set-up threw.
      const cause = isFailure ? failureType(data as EventData.TestFail) : 'subtestsFailed';
      if (cause === 'subtestsFailed') return;
    }
    const name = data.file === undefined ? '(no file)' : relative(root, data.file);
    const file = perFile.get(name) ?? { tests: 0, failed: 0, ms: 0 };
    perFile.set(name, file);
    file.tests++;
    file.ms += data.details.duration_ms;
    if (data.skip !== undefined || data.todo !== undefined) {
      tally.skipped.push(`${name}: ${data.name}: ${reason(data.skip ?? data.todo)}`);
    } else if (isFailure) {
      file.failed++;
      tally.failed++;
      reportFailure(name, data as EventData.TestFail);
    } else {
      tally.passed++;
    }
  }
}

function reason(given: string | boolean | undefined): string {
  return typeof given === 'string' && given !== '' ? given : 'no reason given';
}

function failureType(data: EventData.TestFail): string {
  const error: unknown = data.details.error;
  return typeof error === 'object' && error !== null && 'failureType' in error ? String(error.failureType) : 'unknown';
}

function reportFailure(file: string, data: EventData.TestFail): void {
  const cause: unknown = data.details.error.cause ?? data.details.error;
  const text = inspect(cause, { depth: 3 }).replaceAll('\n', '\n      ');
  process.stdout.write(`  ✖ ${file}:${data.line ?? 0}: ${data.name}\n      ${text}\n`);
}

async function main(words: readonly string[]): Promise<number> {
  const startMs = performance.now();
  const all = tiers();
  const chosenTiers = words.filter((word) => all.some((tier) => tier.name === word) || word === 'check');
  const prefixes = words.filter((word) => !chosenTiers.includes(word)).map((word) => relative(root, join(root, word)));
  const isChosen = (name: string): boolean => chosenTiers.length === 0 || chosenTiers.includes(name);
  const total: Tally = { passed: 0, failed: 0, skipped: [] };
  if (prefixes.length === 0 && isChosen('check')) {
    process.stdout.write('check\n');
    total.failed += runChecks();
  }
  for (const tier of all.filter(({ name }) => isChosen(name))) {
    const files = tier.files.filter((file) => prefixes.length === 0 || prefixes.some((word) => file.startsWith(word)));
    if (prefixes.length > 0 && files.length === 0) continue;
    process.stdout.write(`${tier.name}\n`);
    const tierStartMs = performance.now();
    const tally = await runTier({ ...tier, files });
    const ran = tally.passed + tally.failed;
    if (ran === 0) tally.failed++;
    for (const line of tally.skipped) process.stdout.write(`  skipped ${line}\n`);
    const seconds = ((performance.now() - tierStartMs) / 1000).toFixed(0);
    const counts = `${tally.passed} passed, ${tally.failed} failed, ${tally.skipped.length} skipped`;
    process.stdout.write(
      `${tier.name}: ${counts}${ran === 0 ? ' (a tier that ran nothing has failed)' : ''} in ${seconds} s\n\n`,
    );
    total.passed += tally.passed;
    total.failed += tally.failed;
    total.skipped.push(...tally.skipped);
  }
  if (total.passed + total.failed === 0) {
    process.stderr.write(
      `no test matches '${words.join(' ')}'; tiers are: check ${all.map(({ name }) => name).join(' ')}\n`,
    );
    return 2;
  }
  process.stdout.write(`${((performance.now() - startMs) / 1000).toFixed(0)} s in all\n`);
  process.stdout.write(`total: ${total.passed} passed, ${total.failed} failed, ${total.skipped.length} skipped\n`);
  return total.failed === 0 ? 0 : 1;
}

process.exitCode = await main(process.argv.slice(2));
