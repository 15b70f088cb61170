// The rooms of the source tree and what each may import; checks that the imports hold to it, and
// draws it in ARCHITECTURE.md.
//
//   node tools/rooms.ts            checks, and says each line that does not hold
//   node tools/rooms.ts --fix      writes the drawing into ARCHITECTURE.md

import { globSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';

export interface Room {
  /** Its folder below the root. A room inside another one is a room of its own. */
  readonly path: string;
  readonly purpose: string;
  /** Rooms whose `index.ts` it imports. All may import src/errors.ts. */
  readonly imports: readonly string[];
}

export const room = (path: string, purpose: string, imports = ''): Room => ({
  path,
  purpose,
  imports: imports.split(' ').filter((word) => word !== ''),
});

/** From the bottom up. */
export const rooms: readonly Room[] = [
  room('src/native', 'memory, descriptors, sockets, threads, BPF objects: the only importer of the addon'),
  room('src/headroom', 'how many descriptors are left, and when to take no more work', 'src/native'),
  room('src/system', 'cgroup mount, folders, process identity, version'),
  room('src/text', 'names, sizes, addresses and other words from and for people'),
  room('src/spin', 'whether to spin or to sleep: policies and their tunings'),
  room('src/pace', 'work that many events ask for: at once the first time, then gathered'),
  room('src/status', 'what daemon and backend tell of themselves: plain data and events'),
  room('src/json-lines', 'conversations in JSON lines: messages as tables, framing, heartbeat, hang-up', 'src/text'),
  room('src/tls', 'mutual TLS, certificates', 'src/system src/text'),
  room('src/verbs/endpoint', 'QP endpoints as plain data and in JSON', 'src/json-lines'),
  room('src/verbs', 'device pd mr cq qp srq, batches', 'src/native src/text src/json-lines src/verbs/endpoint'),
  room('src/remoting/protocol', 'calls and rings between guest and backend', 'src/native src/verbs'),
  room('src/remoting/transports', 'unix sockets, QEMU', 'src/native src/remoting/protocol'),
  room('src/providers/soft', 'software RNIC: shm, tcp, RoCEv2', 'src/native src/system src/verbs'),
  room('src/providers/ibverbs', 'real devices by libibverbs', 'src/native src/verbs'),
  room(
    'src/providers/remote',
    'devices of a backend',
    'src/native src/spin src/verbs src/remoting/protocol src/remoting/transports',
  ),
  room('src/providers/recording', 'verbs calls recorded and replayed', 'src/native src/verbs'),
  room(
    'src/providers',
    'verbs with all providers: millrace/verbs',
    'src/verbs src/providers/soft src/providers/ibverbs src/providers/remote',
  ),
  room(
    'src/remoting/backend',
    'lends devices to guests',
    'src/native src/headroom src/spin src/status src/verbs src/remoting/protocol src/remoting/transports src/providers src/providers/recording',
  ),
  room('src/vortex/stream', 'block queue, window, pager, forms', 'src/native'),
  room(
    'src/vortex/net',
    'streams between hosts',
    'src/native src/spin src/json-lines src/tls src/verbs src/verbs/endpoint src/providers src/vortex/stream',
  ),
  room('src/vortex', 'millrace/vortex', 'src/vortex/stream src/vortex/net'),
  room('src/vortex/files', 'files over streams: send, recv', 'src/system src/json-lines src/tls src/vortex'),
  room(
    'src/transfer',
    'DMA buffers with ids, transfers',
    'src/native src/json-lines src/verbs src/verbs/endpoint src/providers',
  ),
  room('src/perf', 'bandwidth and latency, as perftest', 'src/native src/json-lines src/verbs src/providers'),
  room('src/watchdog', 'signs of life of threads, and where a stuck one is'),
  room('src/steering', 'rules, maps, pins, methods', 'src/native src/system src/text src/pace'),
  room('src/loop', "a thread's epoll loop, acceptors, buffers", 'src/native'),
  room('src/direct/arena', 'the memory that two parties of a direct connection share: layout, doorbells', 'src/native'),
  room(
    'src/channel',
    'rings, credits, streams, sessions',
    'src/native src/json-lines src/loop src/steering src/verbs src/verbs/endpoint src/direct/arena',
  ),
  room(
    'src/direct',
    'programs find each other and share rings, with each other or with lanes',
    'src/native src/system src/status src/direct/arena',
  ),
  room('src/config', 'the config file', 'src/system src/steering src/text'),
  room('src/peers', 'who the other nodes are: config, etcd', 'src/text src/pace'),
  room('src/telemetry', 'log, metrics', 'src/status src/steering src/text'),
  room('src/server', 'control API, its client', 'src/status src/system src/telemetry'),
  room(
    'src/lane',
    'a worker thread of the daemon: accepts, carries',
    'src/native src/system src/spin src/status src/watchdog src/headroom src/loop src/steering src/direct/arena src/channel src/config src/providers',
  ),
  room(
    'src/proxy/control',
    'the control connection between daemons',
    'src/native src/text src/json-lines src/tls src/steering',
  ),
  room(
    'src/proxy/admission',
    'whether packets get to where a peer listens: knocks and gates',
    'src/native src/steering src/lane src/proxy/control',
  ),
  room(
    'src/proxy',
    'the daemon',
    'src/native src/system src/text src/status src/tls src/watchdog src/headroom src/steering src/direct src/config src/peers src/lane src/proxy/control src/proxy/admission',
  ),
  room('src/direct/launch', 'the library that programs are started with, and which of them load it', 'src/system'),
  room('src/lab', 'hosts on one machine', 'src/system src/text'),
  room('src/lab/vm', 'guests', 'src/native src/system src/text src/lab'),
  room('src/doctor', 'what this machine can do', 'src/native src/system src/steering'),
  room('src/cli/start', 'what the process was started with, looked at before Node changes it'),
  room(
    'src/cli',
    'arguments and a world in, an exit code out',
    'src/native src/system src/text src/spin src/status src/tls src/verbs src/remoting/transports src/providers src/providers/soft src/providers/ibverbs src/providers/recording src/remoting/backend src/vortex src/vortex/net src/vortex/files src/perf src/steering src/config src/telemetry src/server src/proxy src/direct/launch src/lab src/lab/vm src/doctor src/cli/start',
  ),
  room(
    'workbench/worlds',
    'lab hosts with daemons, etcd and programs in them',
    'src/native src/system src/status src/server src/steering src/lab src/direct src/direct/launch',
  ),
  room(
    'workbench/soak',
    'hours of faults in minutes',
    'src/system src/tls src/steering src/lab src/direct/launch workbench/worlds',
  ),
  room(
    'workbench/scale',
    'what many peers, hosts and connections cost a daemon',
    'src/native src/peers src/steering src/proxy/control src/lab workbench/worlds',
  ),
  room(
    'workbench/bench',
    'rows, rounds, reports',
    'src/native src/text src/spin src/providers src/providers/remote src/remoting/backend src/vortex src/vortex/net src/perf src/status src/steering src/loop src/system src/direct/launch src/lab src/lab/vm workbench/worlds workbench/soak workbench/scale',
  ),
  room('workbench/demo', 'what npm start shows', 'src/system src/tls src/lab src/direct/launch workbench/worlds'),
  room(
    'workbench/cli',
    'the commands of a checkout',
    'src/system src/status src/lab src/doctor src/cli src/cli/start workbench/worlds workbench/bench workbench/soak workbench/scale workbench/demo',
  ),
];

const root = join(import.meta.dirname, '..');
/** Loose files that every room may import. */
const common = new Set(['src/errors.ts']);
const importPattern = /(?:\bfrom|\bimport)\s*\(?\s*'(\.[^']+)'/g;

/** The innermost room that a file is in. */
function roomOf(file: string, table: readonly Room[]): Room | undefined {
  return table
    .filter(({ path }) => file.startsWith(`${path}/`))
    .toSorted((left, right) => right.path.length - left.path.length)[0];
}

function sourceFiles(folder: string): string[] {
  return globSync('{src,workbench}/**/*.ts', { cwd: folder })
    .filter((file) => !file.endsWith('.test.ts') && !file.includes('/fixtures/'))
    .sort();
}

/**
 * Every import that breaks the table, and every permission that nobody uses, as a line for people.
 */
export function roomProblems(folder = root, table = rooms): string[] {
  const problems: string[] = [];
  const unused = new Map(table.map(({ path, imports }) => [path, new Set(imports)]));
  for (const file of sourceFiles(folder)) {
    const from = roomOf(file, table);
    if (from === undefined) {
      if (file !== 'src/index.ts' && !common.has(file)) problems.push(`${file}: it is in no room; see tools/rooms.ts`);
      continue;
    }
    const lines = readFileSync(join(folder, file), 'utf8').split('\n');
    for (const [index, line] of lines.entries()) {
      for (const [, specifier = ''] of line.matchAll(importPattern)) {
        const target = normalize(join(dirname(file), specifier));
        const to = roomOf(target, table);
        if (to === from || common.has(target)) continue;
        const where = `${file}:${index + 1}: ${line.trim()}`;
        if (to === undefined) problems.push(`${where}\n    ${target} is in no room`);
        else if (!from.imports.includes(to.path)) problems.push(`${where}\n    ${from.path} may not import ${to.path}`);
        else if (target !== `${to.path}/index.ts`) problems.push(`${where}\n    import ${to.path}/index.ts instead`);
        if (to !== undefined) unused.get(from.path)?.delete(to.path);
      }
    }
  }
  for (const [path, left] of unused) {
    for (const other of left) problems.push(`tools/rooms.ts: ${path} may import ${other} and does not`);
  }
  return [...problems, ...cycleProblems(table)];
}

/**
 * The table itself must be free of cycles: a room's height is one more than that of the highest
 * room it imports.
 */
function cycleProblems(table: readonly Room[]): string[] {
  const problems: string[] = [];
  const known = new Map(table.map((each) => [each.path, each]));
  const visit = (path: string, way: readonly string[]): void => {
    if (way.includes(path)) {
      problems.push(`tools/rooms.ts: a cycle: ${[...way.slice(way.indexOf(path)), path].join(' -> ')}`);
      return;
    }
    for (const next of known.get(path)?.imports ?? []) visit(next, [...way, path]);
  };
  for (const { path } of table) if (problems.length === 0) visit(path, []);
  return problems;
}

function heightOf(path: string, known: Map<string, number>): number {
  const found = known.get(path);
  if (found !== undefined) return found;
  const imports = rooms.find((each) => each.path === path)?.imports ?? [];
  const height = imports.length === 0 ? 0 : 1 + Math.max(...imports.map((each) => heightOf(each, known)));
  known.set(path, height);
  return height;
}

const brief = (path: string): string => path.replace(/^src\//, '');

/** The rooms as storeys, the highest first; a room imports only rooms of storeys below its own. */
export function drawing(): string {
  const known = new Map<string, number>();
  const heights = rooms.map((each) => heightOf(each.path, known));
  const width = Math.max(...rooms.map(({ path }) => brief(path).length));
  const lines: string[] = [];
  for (let height = Math.max(...heights); height >= 0; height--) {
    const storey = rooms.filter((_, index) => heights[index] === height);
    for (const [index, { path, purpose }] of storey.entries()) {
      const mark = index === 0 ? String(height).padStart(2) : '  ';
      lines.push(`${mark} │ ${brief(path).padEnd(width)}  ${purpose}`);
    }
    if (height > 0) lines.push(`   ├${'─'.repeat(width + 1)}`);
  }
  return lines.join('\n');
}

const BEGIN = '<!-- rooms: written by tools/rooms.ts -->';
const END = '<!-- end of rooms -->';

function withDrawing(text: string): string {
  const start = text.indexOf(BEGIN);
  const end = text.indexOf(END);
  if (start < 0 || end < start) throw new Error(`ARCHITECTURE.md has no place for the drawing (${BEGIN} … ${END})`);
  return `${text.slice(0, start)}${BEGIN}\n\n\`\`\`\n${drawing()}\n\`\`\`\n\n${text.slice(end)}`;
}

function main(isFix: boolean): number {
  const problems = roomProblems();
  const page = join(root, 'ARCHITECTURE.md');
  const text = readFileSync(page, 'utf8');
  if (problems.length === 0 && withDrawing(text) !== text) {
    if (isFix) writeFileSync(page, withDrawing(text));
    else problems.push('ARCHITECTURE.md: the drawing is not that of tools/rooms.ts; run: npm run format');
  }
  for (const problem of problems) process.stderr.write(`${problem}\n`);
  return problems.length === 0 ? 0 : 1;
}

if (import.meta.main) process.exitCode = main(process.argv.includes('--fix'));
