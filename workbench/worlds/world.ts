// Two hosts of a lab with plain TCP between them, and the means to wait for a server in one of
// them.

import { type Host, Lab } from '../../src/lab/index.ts';
import { eventually } from './eventually.ts';
import { temporaryRunDir } from './lab-runs.ts';
import { makePods, type Pods } from './pods.ts';
import { RunningProgram } from './running-program.ts';
import { succeed } from './succeed.ts';

const FIRST_MARKER_PORT = 5901;
const markerScript = `require('node:readline').createInterface({ input: process.stdin }).on('line', (port) =>
  require('node:net').createServer().listen(port, () => console.log(port)))`;

export interface PlainOptions {
  /** Programs run in namespaces behind the two hosts, as in containers. */
  readonly hasPods?: boolean;
}

/** What is added to the environment of each host's programs. */
export interface HostEnv {
  readonly a?: NodeJS.ProcessEnv;
  readonly b?: NodeJS.ProcessEnv;
}

export class World implements AsyncDisposable {
  readonly a: Host;
  readonly b: Host;
  /** Where programs run: the hosts themselves, or namespaces behind them. */
  readonly clientHost: Host;
  readonly serverHost: Host;
  /** Programs run behind the hosts, and daemons learn of each way by a first connect. */
  readonly hasPods: boolean;
  readonly lab: Lab;
  readonly #runDir: ReturnType<typeof temporaryRunDir>;
  #markerPort = FIRST_MARKER_PORT;
  /** Listens on each port that is written to it. */
  #markers: RunningProgram | undefined;

  static async create({ hasPods = false }: PlainOptions = {}): Promise<World> {
    await using undo = new AsyncDisposableStack();
    const runDir = undo.use(temporaryRunDir());
    const lab = undo.use(await Lab.create({ runDir: runDir.path }));
    const pods = hasPods ? await makePods(lab) : undefined;
    undo.move();
    return new World(lab, runDir, pods);
  }

  protected constructor(lab: Lab, runDir: ReturnType<typeof temporaryRunDir>, pods?: Pods, env: HostEnv = {}) {
    this.lab = lab;
    this.#runDir = runDir;
    this.a = lab.host('a').withEnv(env.a ?? {});
    this.b = lab.host('b').withEnv(env.b ?? {});
    this.hasPods = pods !== undefined;
    this.clientHost = pods?.a ?? this.a;
    this.serverHost = pods?.b ?? this.b;
  }

  /** Runs a client and returns what it printed; a failure tells what it said. */
  async call(command: string, args: readonly string[], input = ''): Promise<string> {
    return succeed(this.clientHost, command, args, input);
  }

  /** Whether host a knows of that listener. Over plain TCP there is nothing to know. */
  protected isAnnounced(_endpoint: string): boolean {
    return true;
  }

  /** Waits until a server listens on that port, and host a knows. */
  async listening(port: number): Promise<void> {
    await eventually(`somebody listens on port ${port} of ${this.b.name}`, async () => {
      const { stdout } = await this.serverHost.run('cat', ['/proc/self/net/tcp', '/proc/self/net/tcp6']);
      return isListening(stdout, port);
    });
    const there = `${this.serverHost.ipv4}:${port}`;
    await eventually(`${there} is announced to host a`, () => this.isAnnounced(there));
  }

  /**
   * The same of several ports, in both families where the server has both. Each is waited for:
   * listeners that were opened one after the other may be announced in another order.
   */
  async listeningAll(ports: readonly number[]): Promise<void> {
    const { ipv4, ipv6 } = this.serverHost;
    const expected: string[] = [];
    await eventually(`somebody listens on ports ${ports.join(', ')} of ${this.b.name}`, async () => {
      const [own4, own6] = await Promise.all(
        ['tcp', 'tcp6'].map(async (name) => (await this.serverHost.run('cat', [`/proc/self/net/${name}`])).stdout),
      );
      if (own4 === undefined || own6 === undefined) return false;
      expected.length = 0;
      for (const port of ports) {
        if (!isListening(own4 + own6, port)) return false;
        expected.push(`${ipv4}:${port}`);
        if (isListening(own6, port, UNSPECIFIED)) expected.push(`[${ipv6}]:${port}`);
      }
      return true;
    });
    for (const there of expected) await eventually(`${there} is announced to host a`, () => this.isAnnounced(there));
  }

  /**
   * The same of a server that has closed its listener and opened it again, where host a may still
   * know of the first one. News come in order: when a later listener is known, all before it is.
   */
  async listeningAgain(port: number): Promise<void> {
    const marker = this.#markerPort++;
    this.#markers ??= RunningProgram.start(this.serverHost, process.execPath, ['-e', markerScript], {
      isWritable: true,
    });
    this.#markers.write(String(marker));
    await this.#markers.line(new RegExp(`^${marker}$`));
    await this.listening(marker);
    await this.listening(port);
  }

  async close(): Promise<void> {
    await this.lab.close();
    this.#runDir[Symbol.dispose]();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

/** As the kernel's table of IPv6 sockets has it. */
const UNSPECIFIED = '0'.repeat(32);

/** State 0A is LISTEN; see proc_net_tcp in the kernel's documentation. */
function isListening(table: string, port: number, address = ''): boolean {
  const hex = port.toString(16).toUpperCase().padStart(4, '0');
  return new RegExp(`${address}:${hex} [0-9A-F]+:0000 0A `).test(table);
}
