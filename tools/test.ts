// Runs the tests tier by tier and says of each file and tier what passed, failed and was skipped,
// why, and how long it took.
//
//   npm test                              everything, checks first
//   npm test -- --tier unit               one tier, or several: --tier kernel --tier e2e
//   npm test -- src/native/ test/vm/      the files of any tier whose path starts so

import { spawnSync } from 'node:child_process';
import { globSync, mkdtempSync, readFileSync, rmSync, statfsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import type { EventData } from 'node:test';
import { run } from 'node:test';
import { inspect, parseArgs } from 'node:util';
import { bundleCommand } from './bundle.ts';
import { runChecks } from './check.ts';

const root = join(import.meta.dirname, '..');
process.chdir(root);
// Each file of tests is a process and starts others: what one has stripped of types and compiled,
// the others need not.
process.env.NODE_COMPILE_CACHE ??= join(root, 'build/compile-cache');

const TEST_LIMIT_MS = 300_000;
/**
 * A process that tells of no test for so long is ended, or one that never ends would hold up the
 * run for ever: a test that took too long may still be at work.
 */
const SILENCE_MS = Number(process.env.MILLRACE_TEST_SILENCE_MS ?? TEST_LIMIT_MS + 60_000);
const MEMORY_FOLDER_BYTES = 4 * 1024 ** 3;

interface Tier {
  readonly name: string;
  readonly files: readonly string[];
  /** Processes at once, except for files that say that they run alone. */
  readonly slots: number;
  /** Whether files of one folder share a process, except those that say that they do not. */
  readonly sharesProcesses?: boolean;
  /** Whether tests start the millrace command, which is bundled for them. */
  readonly startsCommand?: boolean;
  readonly env?: Readonly<Record<string, string>>;
}

interface Tally {
  passed: number;
  failed: number;
  readonly skipped: string[];
}

/**
 * They take longest of their tier: they are started first, each in a process of its own, so that no
 * processor waits for them in the end.
 */
const longest = [
  'src/providers/soft/survival.test.ts',
  'src/providers/soft/conformance.test.ts',
  'src/providers/soft/model.test.ts',
  'src/providers/soft/faults.test.ts',
  'test/kernel/proxy/programs.test.ts',
  'test/kernel/direct/between-hosts.test.ts',
  'test/kernel/direct/programs.test.ts',
  'test/kernel/direct/more-programs.test.ts',
  'test/kernel/proxy/behaviours.test.ts',
  'test/kernel/steering/redirect.test.ts',
  'test/kernel/direct/sanitizers.test.ts',
  'test/kernel/proxy/privileges.test.ts',
  'test/kernel/containers/containers.test.ts',
  'test/kernel/attacks/filters.test.ts',
  'test/vm/providers/ibverbs.test.ts',
  'test/vm/remoting/remoting.test.ts',
  'test/vm/providers/roce.test.ts',
  'test/vm/proxy/proxy.test.ts',
  'test/e2e/repository/setup.test.ts',
  'test/e2e/demo/demo.test.ts',
  'test/e2e/repository/package.test.ts',
];

function tiers(): Tier[] {
  const sanitized = ['src/native/*.test.ts', 'test/kernel/native/bpf*.test.ts'];
  return [
    {
      name: 'unit',
      files: filesOf('{src,workbench,tools}/**/*.test.ts'),
      // Many of them wait more than they compute.
      slots: 3,
      sharesProcesses: true,
      env: memoryEnvironment(),
    },
    { name: 'sanitizer', files: filesOf(...sanitized), slots: 2, env: sanitizerEnvironment() },
    {
      name: 'kernel',
      files: filesOf('test/kernel/**/*.test.ts'),
      slots: 3,
      startsCommand: true,
      env: memoryEnvironment(),
    },
    { name: 'vm', files: filesOf('test/vm/**/*.test.ts'), slots: 2 },
    {
      name: 'e2e',
      files: filesOf('test/e2e/**/*.test.ts'),
      slots: 2,
      startsCommand: true,
      env: memoryEnvironment(),
    },
  ];
}

function filesOf(...patterns: readonly string[]): string[] {
  const files = globSync(patterns).sort();
  return [...longest.filter((file) => files.includes(file)), ...files.filter((file) => !longest.includes(file))];
}

/**
 * Temporary files in memory where there is enough for a clone with all its packages: to remove one
 * from a disk takes milliseconds.
 */
function memoryEnvironment(): Record<string, string> {
  const folder = '/dev/shm';
  try {
    const { bavail, bsize } = statfsSync(folder);
    const [, options = 'noexec'] = / \/dev\/shm tmpfs (\S+)/.exec(readFileSync('/proc/self/mounts', 'utf8')) ?? [];
    const isUsable = bavail * bsize >= MEMORY_FOLDER_BYTES && !options.split(',').includes('noexec');
    return isUsable ? { TMPDIR: folder } : {};
  } catch {
    return {};
  }
}

/**
 * The native tests again, against the addon built with AddressSanitizer and
 * UndefinedBehaviorSanitizer.
 */
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

/**
 * In the first lines of a file, with the reason: it measures, or it needs something that a machine
 * has once.
 */
const alonePattern = /^\/\/.*\bRuns alone: /m;
/** Likewise: it counts what its process has, changes it, or awaits at its top level. */
const ownProcessPattern = /^\/\/.*\bRuns in a process of its own: /m;
const HEAD_BYTES = 1000;
const FEW_FILES = 5;

/** Imports the files that are its arguments, each in a suite that has the file's name. */
const groupProgram = 'tools/test-group.ts';

function says(file: string, pattern: RegExp): boolean {
  return pattern.test(readFileSync(file, 'utf8').slice(0, HEAD_BYTES));
}

/** What one process runs: a file, or files that share it. */
interface Job {
  readonly files: readonly string[];
  readonly isShared: boolean;
}

/** First several processes at once, then one by one the files that run alone. */
async function runTier(tier: Tier): Promise<Tally> {
  const tally: Tally = { passed: 0, failed: 0, skipped: [] };
  // The script `millrace` runs it in place of the sources.
  if (tier.startsCommand === true && tier.files.length > 0) process.env.MILLRACE_BUNDLE ??= await bundleCommand();
  const alone = tier.files.filter((file) => says(file, alonePattern));
  const queue = jobsOf({ ...tier, files: tier.files.filter((file) => !alone.includes(file)) });
  const work = async (): Promise<void> => {
    for (let job = queue.shift(); job !== undefined; job = queue.shift()) await runJob(job, tier, tally);
  };
  await Promise.all(Array.from({ length: tier.slots }, work));
  for (const file of alone) await runJob({ files: [file], isShared: false }, tier, tally);
  return tally;
}

/**
 * First the longest files, then folders, those with most files first, then single files. Folders of
 * few files share a process, too.
 */
function jobsOf(tier: Tier): Job[] {
  const mayShare = (file: string): boolean =>
    tier.sharesProcesses === true && !longest.includes(file) && !says(file, ownProcessPattern);
  const single = tier.files.filter((file) => !mayShare(file)).map((file) => ({ files: [file], isShared: false }));
  const folders = [...Map.groupBy(tier.files.filter(mayShare), folderOf).values()];
  const few = folders.filter(({ length }) => length < FEW_FILES).flat();
  const shared = [...folders.filter(({ length }) => length >= FEW_FILES), few]
    .filter(({ length }) => length > 0)
    .sort((left, right) => right.length - left.length);
  const isLong = ({ files }: Job): boolean => longest.includes(files[0]);
  return [
    ...single.filter(isLong),
    ...shared.map((files) => ({ files, isShared: true })),
    ...single.filter((job) => !isLong(job)),
  ];
}

/** For example src/providers, for all that is below it. */
function folderOf(file: string): string {
  return dirname(file).split('/').slice(0, 2).join('/');
}

async function runJob({ files, isShared }: Job, tier: Tier, tally: Tally): Promise<void> {
  const startMs = performance.now();
  const [program = '', argv] = isShared ? [groupProgram, [...files]] : [files[0], []];
  // Files in the order in which they run.
  const unfinished = [...files];
  let [tests, failures] = [0, 0];
  const env = tier.env && { ...process.env, ...tier.env };
  const silence = new AbortController();
  const timer = setTimeout(() => silence.abort(), SILENCE_MS);
  const { signal } = silence;
  const stream = run({ files: [program], argv, concurrency: 1, timeout: TEST_LIMIT_MS, signal, ...(env && { env }) });
  stream.on('test:pass', (data) => count(data, false));
  stream.on('test:fail', (data) => count(data, true));
  stream.on('test:stderr', ({ message }) => void process.stderr.write(message));
  for await (const _ of stream) timer.refresh();
  clearTimeout(timer);
  if (signal.aborted)
    fail(`${unfinished[0] ?? files.at(-1)}: its process did not end, and told of no test for ${SILENCE_MS / 1000} s`);
  if (!isShared) finishFile(performance.now() - startMs);
  while (unfinished.length > 0) {
    fail(`${unfinished[0]}: it did not finish, because the process ended that it shares with others`);
    finishFile(0);
  }

  function count(data: EventData.TestPass | EventData.TestFail, isFailure: boolean): void {
    // Node reports the program itself, as a test, when it ran no test or did not end well.
    const isProgram = data.nesting === 0 && data.name === program;
    // A suite fails because a test in it did, unless its own set-up threw.
    const isSuite = data.details.type === 'suite';
    const isOwnFailure = isFailure && !(isSuite && failureType(data as EventData.TestFail) === 'subtestsFailed');
    if (isOwnFailure || !(isSuite || isProgram)) countTest(data, isFailure);
    if (isSuite && isShared && data.nesting === 0) finishFile(data.details.duration_ms);
  }

  function countTest(data: EventData.TestPass | EventData.TestFail, isFailure: boolean): void {
    const file = unfinished[0] ?? program;
    tests++;
    if (data.skip !== undefined || data.todo !== undefined) {
      tally.skipped.push(`${file}: ${data.name}: ${reason(data.skip ?? data.todo)}`);
    } else if (isFailure) {
      fail(failureText(data as EventData.TestFail, file));
    } else {
      tally.passed++;
    }
  }

  function fail(text: string): void {
    failures++;
    tally.failed++;
    process.stdout.write(`  ✖ ${text}\n`);
  }

  function finishFile(durationMs: number): void {
    const file = unfinished.shift();
    if (tests === 0 && failures === 0) fail(`${file}: it has no tests`);
    const seconds = (durationMs / 1000).toFixed(1).padStart(6);
    process.stdout.write(`  ${failures === 0 ? '✔' : '✖'} ${seconds} s  ${String(tests).padStart(4)} tests  ${file}\n`);
    [tests, failures] = [0, 0];
  }
}

function reason(given: string | boolean | undefined): string {
  return typeof given === 'string' && given !== '' ? given : 'no reason given';
}

function failureType(data: EventData.TestFail): string {
  const error: unknown = data.details.error;
  return typeof error === 'object' && error !== null && 'failureType' in error ? String(error.failureType) : 'unknown';
}

function failureText(data: EventData.TestFail, file: string): string {
  const cause: unknown = data.details.error.cause ?? data.details.error;
  const text = inspect(cause, { depth: 3 }).replaceAll('\n', '\n      ');
  if (data.name === file) return `${file}: an error outside of its tests\n      ${text}`;
  // Where the test is written, which may be a file that the one that runs has imported.
  const place = data.file === undefined ? file : relative(root, data.file);
  return `${place}:${data.line ?? 0}: ${data.name}\n      ${text}`;
}

async function main(args: readonly string[]): Promise<number> {
  const startMs = performance.now();
  const all = tiers();
  const names = ['check', ...all.map(({ name }) => name)];
  const { values, positionals } = parseArgs({
    args: [...args],
    options: { tier: { type: 'string', multiple: true, default: [] } },
    allowPositionals: true,
  });
  // The name of a tier alone means the tier, too.
  const chosen = [...values.tier, ...positionals.filter((word) => names.includes(word))];
  const prefixes = positionals.filter((word) => !names.includes(word)).map((word) => relative(root, join(root, word)));
  const unknown = values.tier.find((name) => !names.includes(name));
  if (unknown !== undefined) return refuse(`there is no tier '${unknown}'`, names);
  const isChosen = (name: string): boolean => chosen.length === 0 || chosen.includes(name);
  const total: Tally = { passed: 0, failed: 0, skipped: [] };
  const took: string[] = [];
  if (prefixes.length === 0 && isChosen('check')) {
    process.stdout.write('check\n');
    total.failed += runChecks();
    took.push(`check ${secondsSince(startMs)} s`);
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
    const seconds = secondsSince(tierStartMs);
    const counts = `${tally.passed} passed, ${tally.failed} failed, ${tally.skipped.length} skipped`;
    process.stdout.write(
      `${tier.name}: ${counts}${ran === 0 ? ' (a tier that ran nothing has failed)' : ''} in ${seconds} s\n\n`,
    );
    took.push(`${tier.name} ${seconds} s`);
    total.passed += tally.passed;
    total.failed += tally.failed;
    total.skipped.push(...tally.skipped);
  }
  if (total.passed + total.failed === 0 && prefixes.length > 0) {
    return refuse(`no test matches '${positionals.join(' ')}'`, names);
  }
  process.stdout.write(`${secondsSince(startMs)} s in all: ${took.join(', ')}\n`);
  process.stdout.write(`total: ${total.passed} passed, ${total.failed} failed, ${total.skipped.length} skipped\n`);
  return total.failed === 0 ? 0 : 1;
}

function refuse(why: string, names: readonly string[]): number {
  process.stderr.write(`${why}; tiers are: ${names.join(' ')}\n`);
  return 2;
}

function secondsSince(startMs: number): string {
  return ((performance.now() - startMs) / 1000).toFixed(0);
}

/** Where files of tests leave what others of the same run need not find again. */
const runFolder = mkdtempSync(join(tmpdir(), 'millrace-test-run-'));
process.env.MILLRACE_TEST_RUN = runFolder;
process.exitCode = await main(process.argv.slice(2)).finally(() => rmSync(runFolder, { recursive: true }));
