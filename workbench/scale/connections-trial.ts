// As many carried connections through one pair of daemons as the machine's limits allow: from one
// address, to servers on several ports.

import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { freemem } from 'node:os';
import { type Host, Lab } from '../../src/lab/index.ts';
import { removeInstance } from '../../src/steering/index.ts';
import {
  DaemonProcess,
  daemonSettings,
  eventually,
  instanceOf,
  RunningProgram,
  temporaryFolder,
} from '../worlds/index.ts';
import { cpuNs, figuresOf } from './process-figures.ts';

interface DaemonFigures {
  readonly residentBytes: number;
  /** More than before the connections. */
  readonly addedBytes: number;
  readonly descriptors: number;
  readonly cpuSeconds: number;
}

export interface ConnectionsReport {
  readonly goal: number;
  /** Open at the same time, and answering. */
  readonly open: number;
  readonly carried: number;
  readonly openMs: number;
  /** Of a second question on each, when all were open. */
  readonly answered: number;
  readonly client: DaemonFigures;
  readonly server: DaemonFigures;
  /** What the kernel holds for TCP of both hosts. */
  readonly kernelBytes: number;
  /** What ended it before the goal; '' when nothing did. */
  readonly bound: string;
}

interface ConnectionsOptions {
  readonly connections: number;
  readonly signal: AbortSignal;
  readonly onStep?: (what: string) => void;
}

const FIRST_PORT = 7300;
/** The second leg ends at the server's port: an address of its host has 28,232 ports for it. */
const PER_SERVER = 12_500;
/** A link has 32,768 streams in each direction, and a lane has one link with a peer. */
const PER_LINK = 24_000;
const WAIT_MS = 1_800_000;
const GIB = 1024 ** 3;
/** That a daemon has besides its connections, and some that stay free. */
const OTHER_DESCRIPTORS = 500;
const LEAST_FREE_BYTES = 2 * GIB;
const PAGE_BYTES = 4096;

const holdProgram = new URL('./hold-program.ts', import.meta.url).pathname;

export async function runConnections(options: ConnectionsOptions): Promise<ConnectionsReport> {
  const { connections, signal, onStep = () => {} } = options;
  await using undo = new AsyncDisposableStack();
  const folder = undo.use(temporaryFolder('connections')).path;
  const lab = undo.use(await Lab.create({ hosts: 2, signal }));
  const [a, b] = [lab.host('a'), lab.host('b')];
  undo.defer(() => {
    for (const host of [a, b]) removeInstance(instanceOf(host));
  });
  const { most, raised, bound } = descriptorsHere();
  const wanted = Math.min(connections, most - OTHER_DESCRIPTORS);
  const start = async (host: Host, peer: Host): Promise<DaemonProcess> => {
    const common = daemonSettings({ host, peers: [peer], folder, devices: ['soft-shm'] });
    const settings = {
      ...common,
      drainSeconds: 0,
      ...(wanted > PER_LINK && { lanes: Math.ceil(wanted / PER_LINK) }),
    };
    return undo.use(await DaemonProcess.start(host, folder, settings, process.env, raised));
  };
  const [client, server] = await Promise.all([start(a, b), start(b, a)]);
  await client.peerUp();
  const before = [client, server].map(({ pid }) => ({ ...figuresOf(pid), cpuNs: cpuNs(pid) }));
  const servers = Math.ceil(wanted / PER_SERVER);
  const run = (host: Host, words: readonly string[]): RunningProgram => {
    const [command = '', ...args] = [...raised, process.execPath, holdProgram, ...words];
    return undo.use(RunningProgram.start(host, command, args, { isWritable: true }));
  };
  const ports = Array.from({ length: servers }, (_, index) => FIRST_PORT + index);
  const serving = ports.map((port) => run(b, ['serve', b.ipv4, String(port)]));
  for (const program of serving) await program.line(/listening/);
  const isKnown = (): boolean => ports.every((port) => client.isAnnounced(`${b.ipv4}:${port}`));
  await eventually('the client’s host knows of all servers', isKnown);
  const carriedBefore = client.verdict('carried');
  onStep(`opens ${wanted} connections from ${a.ipv4} to ${servers} ports of ${b.ipv4}`);
  const startMs = performance.now();
  const bounds = new Set<string>(wanted < connections ? [bound] : []);
  let hasFailed = false;
  const holding: RunningProgram[] = [];
  let open = 0;
  // One program after the other: together they would only wait for processors.
  for (const port of ports) {
    if (hasFailed) break;
    if (freemem() < LEAST_FREE_BYTES) {
      bounds.add(`less than ${LEAST_FREE_BYTES / GIB} GiB of memory left`);
      break;
    }
    const program = run(a, ['hold', b.ipv4, String(port), String(Math.min(PER_SERVER, wanted - open))]);
    holding.push(program);
    const held = JSON.parse(await program.line(/"held"/, WAIT_MS)) as {
      readonly count: number;
      readonly failure: string;
    };
    open += held.count;
    hasFailed = held.failure !== '';
    if (hasFailed) bounds.add(held.failure);
    onStep(`${open} are open`);
  }
  const openMs = performance.now() - startMs;
  onStep('asks on each of them again');
  let answered = 0;
  for (const program of holding) {
    program.write('ask');
    answered += (JSON.parse(await program.line(/"asked"/, WAIT_MS)) as { readonly right: number }).right;
  }
  const figures = (daemon: DaemonProcess, index: number): DaemonFigures => {
    const [now, then] = [figuresOf(daemon.pid), before[index]];
    return {
      residentBytes: now.residentBytes,
      addedBytes: now.residentBytes - (then?.residentBytes ?? 0),
      descriptors: now.descriptors,
      cpuSeconds: (cpuNs(daemon.pid) - (then?.cpuNs ?? 0)) / 1e9,
    };
  };
  return {
    goal: connections,
    open,
    carried: client.verdict('carried') - carriedBefore,
    openMs,
    answered,
    client: figures(client, 0),
    server: figures(server, 1),
    kernelBytes: await tcpBytes(a),
    bound: [...bounds].join(', '),
  };
}

/** How many descriptors a process may have here, and the words that give it as many. */
function descriptorsHere(): { readonly most: number; readonly raised: readonly string[]; readonly bound: string } {
  const most = Number(readFileSync('/proc/sys/fs/nr_open', 'utf8'));
  const raised = ['prlimit', `--nofile=${most}:${most}`];
  const isAllowed = spawnSync(raised[0] ?? '', [...raised.slice(1), 'true']).status === 0;
  if (isAllowed) return { most, raised, bound: `descriptors: fs.nr_open is ${most}` };
  const hard = Number(/^Max open files\s+\S+\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1]);
  return { most: hard, raised: [], bound: `descriptors: ulimit -Hn is ${hard}, and may not be raised here` };
}

/** Of all hosts of the machine: the kernel counts the pages of TCP once for all. */
async function tcpBytes(host: Host): Promise<number> {
  const { stdout } = await host.run('cat', ['/proc/net/sockstat']);
  return PAGE_BYTES * Number(/^TCP: .* mem (\d+)$/m.exec(stdout)?.[1] ?? Number.NaN);
}
