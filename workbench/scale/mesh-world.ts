// Many lab hosts with a daemon each, which find each other by etcd, and a program in each that
// talks with all others.

import { MillraceError } from '../../src/errors.ts';
import { type Host, Lab } from '../../src/lab/index.ts';
import { removeInstance } from '../../src/steering/index.ts';
import {
  DaemonProcess,
  daemonSettings,
  Etcd,
  eventually,
  instanceOf,
  RunningProgram,
  temporaryFolder,
} from '../worlds/index.ts';

const PORT = 7300;
/** All hosts of a lab. */
const labNetworks = ['10.77.0.0/24', 'fd77::/64'] as const;
/** More at once only wait for processors. */
const STARTS_AT_ONCE = 4;
const WAIT_MS = 600_000;

const meshProgram = new URL('./mesh-program.ts', import.meta.url).pathname;

interface Node {
  readonly host: Host;
  daemon: DaemonProcess;
  program: RunningProgram | undefined;
}

export class MeshWorld implements AsyncDisposable {
  readonly #nodes: readonly Node[];
  readonly #start: (host: Host) => Promise<DaemonProcess>;
  readonly #undo: AsyncDisposableStack;
  #round = 0;

  /** All daemons run; they may not have met yet. */
  static async create(hosts: number, signal: AbortSignal): Promise<MeshWorld> {
    await using undo = new AsyncDisposableStack();
    const folder = undo.use(temporaryFolder('mesh')).path;
    const names = Array.from({ length: hosts }, (_, index) => `h${index + 1}`);
    const lab = undo.use(await Lab.create({ hosts: [...names, 'store'], signal }));
    undo.defer(() => {
      for (const host of lab.hosts) removeInstance(instanceOf(host));
    });
    await knowNeighbours(lab.hosts);
    const etcd = undo.use(await Etcd.start({ host: lab.host('store') }));
    const start = (host: Host): Promise<DaemonProcess> => {
      const settings = daemonSettings({ host, peers: [], folder, devices: ['soft-shm'] });
      const more = {
        rules: labNetworks.map((network) => `connect to ${network}`),
        etcd: { endpoints: [etcd.endpoint], leaseSeconds: 60 },
        // Each destination is to be carried from its first connect on.
        idleDestinations: 256,
        drainSeconds: 1,
      };
      return DaemonProcess.start(host, folder, { ...settings, ...more }, process.env, [], WAIT_MS);
    };
    const nodes: Node[] = [];
    undo.defer(async () => {
      await Promise.all(nodes.map(({ daemon }) => daemon.kill()));
    });
    await atOnce(names, async (name) => {
      signal.throwIfAborted();
      const host = lab.host(name);
      nodes.push({ host, daemon: await start(host), program: undefined });
    });
    return new MeshWorld(nodes, start, undo.move());
  }

  private constructor(
    nodes: readonly Node[],
    start: (host: Host) => Promise<DaemonProcess>,
    undo: AsyncDisposableStack,
  ) {
    this.#nodes = nodes;
    this.#start = start;
    this.#undo = undo;
  }

  get pids(): readonly number[] {
    return this.#nodes.map(({ daemon }) => daemon.pid);
  }

  /** Each daemon can carry to all others. */
  async met(): Promise<void> {
    const others = this.#nodes.length - 1;
    for (const { daemon } of this.#nodes) {
      const isUp = async (): Promise<boolean> => {
        // One that gets no processor for seconds gives no answer.
        const status = await daemon.status().catch(() => undefined);
        return status?.peers.filter(({ state }) => state === 'up').length === others;
      };
      await eventually(`${daemon.host.name} has met all others`, isUp, WAIT_MS);
    }
  }

  /** A program listens on each host, and each kernel knows of all. */
  async listen(): Promise<void> {
    for (const node of this.#nodes) {
      const addresses = this.#nodes.filter((one) => one !== node).map(({ host }) => host.ipv4);
      const words = [meshProgram, node.host.ipv4, String(PORT), ...addresses];
      const options = { isWritable: true };
      node.program ??= this.#undo.use(RunningProgram.start(node.host, process.execPath, words, options));
    }
    for (const { program } of this.#nodes) await program?.line(/listening/, WAIT_MS);
    await this.known();
  }

  /** Each kernel knows of the programs on all other hosts. */
  async known(): Promise<void> {
    for (const { host, daemon } of this.#nodes) {
      const others = this.#nodes.filter((one) => one.host !== host).map((one) => `${one.host.ipv4}:${PORT}`);
      const isKnown = (): boolean => others.every((endpoint) => daemon.isAnnounced(endpoint));
      await eventually(`${host.name} knows of all others`, isKnown, WAIT_MS);
    }
  }

  /** All talk with all. Resolves to what went wrong, and how many connections were carried. */
  async talk(): Promise<{ readonly problems: readonly string[]; readonly carried: number }> {
    const carried = (): number => this.#nodes.reduce((sum, { daemon }) => sum + daemon.verdict('carried'), 0);
    const before = carried();
    const round = String(this.#round++);
    const answers = this.#nodes.map(async ({ program }) => {
      program?.write(round);
      const line = await program?.line(/"done"/, WAIT_MS);
      return (JSON.parse(line ?? '{}') as { readonly problems: readonly string[] }).problems;
    });
    const problems = (await Promise.all(answers)).flat();
    return { problems, carried: carried() - before };
  }

  /** Every third daemon is killed, then started again. Resolves to how many. */
  async restartThird(): Promise<number> {
    const third = this.#nodes.filter((_, index) => index % 3 === 0);
    await Promise.all(third.map(({ daemon }) => daemon.kill()));
    await atOnce(third, async (node) => {
      node.daemon = await this.#start(node.host);
    });
    return third.length;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#undo.disposeAsync();
  }
}

/**
 * Each host is told the others' hardware addresses for good. The kernel has one table of neighbours
 * for all hosts of the machine, with 1,024 places as a rule (gc_thresh3), where permanent entries
 * do not count: 33 hosts that ask each other fill it, and then some never reach some others.
 */
async function knowNeighbours(hosts: readonly Host[]): Promise<void> {
  const lines = new Map<Host, string>();
  await atOnce(hosts, async (host) => {
    const { stdout } = await host.run('ip', ['-o', 'link', 'show', 'eth0']);
    const address = /link\/ether (\S+)/.exec(stdout)?.[1] ?? '';
    lines.set(host, `neigh replace ${host.ipv4} lladdr ${address} dev eth0 nud permanent\n`);
  });
  await atOnce(hosts, async (host) => {
    const input = hosts.flatMap((other) => (other === host ? [] : [lines.get(other) ?? ''])).join('');
    const { code, stderr } = await host.run('ip', ['-batch', '-'], { input });
    if (code !== 0) throw new MillraceError('MILLRACE_ERR_FAILED', `neighbours of host ${host.name}: ${stderr.trim()}`);
  });
}

/** A few at a time. */
async function atOnce<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  const queue = [...items];
  const worker = async (): Promise<void> => {
    for (let item = queue.shift(); item !== undefined; item = queue.shift()) await work(item);
  };
  await Promise.all(Array.from({ length: STARTS_AT_ONCE }, worker));
}
