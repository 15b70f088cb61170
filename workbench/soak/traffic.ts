// The traffic program of one host, as the soak sees it.

import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { MillraceError } from '../../src/errors.ts';
import type { Host } from '../../src/lab/index.ts';
import type { Outcome } from './conversation.ts';
import type { TrafficEvent, TrafficOrders, TrafficTotals } from './traffic-protocol.ts';

const program = new URL('./traffic-program.ts', import.meta.url).pathname;

export class Traffic implements AsyncDisposable {
  readonly host: Host;
  /** The connections that did not end exactly. */
  readonly outcomes: Outcome[] = [];
  readonly #child: ChildProcess;
  readonly #exited: Promise<unknown>;
  readonly #said: TrafficEvent[] = [];
  #wake: () => void = () => {};
  #isOver = false;

  /** Resolves when it listens. */
  static async start(host: Host, orders: TrafficOrders): Promise<Traffic> {
    const traffic = new Traffic(host, orders);
    await traffic.#heard('listening');
    return traffic;
  }

  private constructor(host: Host, orders: TrafficOrders) {
    this.host = host;
    this.#child = host.spawn(process.execPath, [program, JSON.stringify(orders)], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    this.#exited = once(this.#child, 'exit');
    const { stdout } = this.#child;
    if (stdout === null)
      throw new MillraceError('MILLRACE_ERR_FAILED', 'start the traffic program: it has no standard output');
    const lines = createInterface(stdout);
    lines.on('line', (line) => {
      const event = JSON.parse(line) as TrafficEvent;
      if (event.event === 'outcome') this.outcomes.push(event.outcome);
      else this.#said.push(event);
      this.#wake();
    });
    lines.on('close', () => {
      this.#isOver = true;
      this.#wake();
    });
  }

  start(): void {
    this.#tell('start');
  }

  signal(name: NodeJS.Signals): void {
    this.#child.kill(name);
  }

  /** Resolves when the last connection that it opened is over. */
  async stop(): Promise<void> {
    this.#tell('stop');
    await this.#heard('called');
  }

  /** Ends the program, once the other host opens no connections any more. */
  async totals(): Promise<TrafficTotals> {
    this.#tell('end');
    const { totals } = await this.#heard('totals');
    await this.#exited;
    return totals;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#child.exitCode === null && this.#child.signalCode === null) this.#child.kill('SIGKILL');
    await this.#exited;
  }

  #tell(order: string): void {
    this.#child.stdin?.write(`${order}\n`);
  }

  async #heard<K extends TrafficEvent['event']>(kind: K): Promise<Extract<TrafficEvent, { event: K }>> {
    const isIt = (event: TrafficEvent): event is Extract<TrafficEvent, { event: K }> => event.event === kind;
    for (;;) {
      const found = this.#said.find(isIt);
      if (found !== undefined) return found;
      if (this.#isOver) {
        throw new MillraceError('MILLRACE_ERR_FAILED', `the traffic program of host ${this.host.name} ended by itself`);
      }
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#wake = resolve;
      await promise;
    }
  }
}
