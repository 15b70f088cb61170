// Two hosts of a lab with plain TCP between them, and the means to wait for a server in one of
// them.

import { constants } from 'node:fs';
import { type Host, Lab } from '../../src/lab/index.ts';
import { Fd, inNetns, listeningSockets } from '../../src/native/index.ts';
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
    await eventually(`somebody listens on port ${port} of ${this.b.name}`, () =>
      listenersOf(this.serverHost).some((one) => one.port === port),
    );
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
    await eventually(`somebody listens on ports ${ports.join(', ')} of ${this.b.name}`, () => {
      const listeners = listenersOf(this.serverHost);
      expected.length = 0;
      for (const port of ports) {
        const there = listeners.filter((one) => one.port === port);
        if (there.length === 0) return false;
        expected.push(`${ipv4}:${port}`);
        if (there.some(({ family, address }) => family === 'ipv6' && address.every((word) => word === 0))) {
          expected.push(`[${ipv6}]:${port}`);
        }
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

/** Asked from here: a process in the host for each question would take longer than the answer. */
function listenersOf(host: Host): ReturnType<typeof listeningSockets> {
  using namespace = Fd.open(host.namespaceFile, constants.O_RDONLY);
  return inNetns(namespace, () => (['ipv4', 'ipv6'] as const).flatMap((family) => listeningSockets(family)));
}
