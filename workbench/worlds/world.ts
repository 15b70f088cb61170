// Two hosts of a lab with plain TCP between them, and the means to wait for a server in one of
// them.

import { type Host, Lab, type ProgramResult } from '../../src/lab/index.ts';
import { eventually, TIMEOUT_MS } from './eventually.ts';
import { temporaryRunDir } from './lab-runs.ts';
import { RunningProgram } from './running-program.ts';

const FIRST_MARKER_PORT = 5901;
const markerScript = `require('node:readline').createInterface({ input: process.stdin }).on('line', (port) =>
  require('node:net').createServer().listen(port, () => console.log(port)))`;

export class World implements AsyncDisposable {
  readonly a: Host;
  readonly b: Host;
  readonly lab: Lab;
  readonly #runDir: ReturnType<typeof temporaryRunDir>;
  #markerPort = FIRST_MARKER_PORT;
  /** Listens on each port that is written to it. */
  #markers: RunningProgram | undefined;

  static async create(): Promise<World> {
    const runDir = temporaryRunDir();
    try {
      return new World(await Lab.create({ runDir: runDir.path }), runDir);
    } catch (error) {
      runDir[Symbol.dispose]();
      throw error;
    }
  }

  protected constructor(lab: Lab, runDir: ReturnType<typeof temporaryRunDir>) {
    this.lab = lab;
    this.#runDir = runDir;
    this.a = lab.host('a');
    this.b = lab.host('b');
  }

  /** Runs a program in host a and returns what it printed; a failure tells what it said. */
  async call(command: string, args: readonly string[], input = ''): Promise<string> {
    return succeed(this.a, command, args, input);
  }

  /** Whether host a knows of that listener. Over plain TCP there is nothing to know. */
  protected isAnnounced(_endpoint: string): boolean {
    return true;
  }

  /** Waits until somebody listens on that port of host b, and host a knows. */
  async listening(port: number): Promise<void> {
    await eventually(`somebody listens on port ${port} of ${this.b.name}`, async () => {
      const { stdout } = await this.b.run('cat', ['/proc/self/net/tcp', '/proc/self/net/tcp6']);
      return isListening(stdout, port);
    });
    const there = `${this.b.ipv4}:${port}`;
    await eventually(`${there} is announced to host a`, () => this.isAnnounced(there));
  }

  /**
   * The same of a server that has closed its listener and opened it again, where host a may still
   * know of the first one. News come in order: when a later listener is known, all before it is.
   */
  async listeningAgain(port: number): Promise<void> {
    const marker = this.#markerPort++;
    this.#markers ??= RunningProgram.start(this.b, process.execPath, ['-e', markerScript], { isWritable: true });
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

export async function succeed(host: Host, command: string, args: readonly string[], input = ''): Promise<string> {
  const result: ProgramResult = await host.run(command, args, { input, signal: AbortSignal.timeout(2 * TIMEOUT_MS) });
  if (result.code === 0) return result.stdout;
  const how = `${command} ${args.join(' ')} in host ${host.name} ended with ${result.signal ?? result.code}`;
  throw new Error(`${how}\n${result.stdout}\n${result.stderr}`);
}

/** State 0A is LISTEN; see proc_net_tcp in the kernel's documentation. */
function isListening(table: string, port: number): boolean {
  const hex = port.toString(16).toUpperCase().padStart(4, '0');
  return new RegExp(`:${hex} [0-9A-F]+:0000 0A `).test(table);
}
