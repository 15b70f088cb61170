// A program that runs in a guest and tells events, a line of JSON each.

import { MillraceError } from '../../src/errors.ts';
import type { CommandResult, Guest } from '../../src/lab/vm/index.ts';

/** Of one event, on a busy machine. */
const EVENT_MS = 120_000;
const LIFE_MS = 300_000;

interface Told {
  readonly event: string;
  readonly data: unknown;
}

interface Wanted {
  /** How many events had been told when the wait began to matter. */
  readonly after?: number;
  readonly isWanted?: (data: unknown) => boolean;
}

export class GuestProgram {
  readonly #guest: Guest;
  readonly #name: string;
  readonly #events: Told[] = [];
  readonly #running: Promise<CommandResult>;
  #rest = '';
  #said = '';
  #pid = 0;
  #onEvent = Promise.withResolvers<void>();
  #hasEnded = false;

  static start(guest: Guest, words: readonly string[], env: Readonly<Record<string, string>>): GuestProgram {
    return new GuestProgram(guest, words, env);
  }

  private constructor(guest: Guest, words: readonly string[], env: Readonly<Record<string, string>>) {
    this.#guest = guest;
    this.#name = `${words
      .find((word) => word.endsWith('.js'))
      ?.split('/')
      .at(-1)} in ${guest.name}`;
    this.#running = guest.run(words, {
      env,
      timeoutMs: LIFE_MS,
      onOutput: (chunk, stream) => this.#hear(Buffer.from(chunk).toString(), stream === 'stdout'),
    });
    const ended = (): void => {
      this.#hasEnded = true;
      this.#wake();
    };
    this.#running.then(ended, ended);
  }

  /** Events up to now. */
  get count(): number {
    return this.#events.length;
  }

  /** The data of the first such event; waits for it. */
  async told(event: string, { after = 0, isWanted = () => true }: Wanted = {}): Promise<unknown> {
    const endMs = performance.now() + EVENT_MS;
    for (let next = after; ; next++) {
      while (next >= this.#events.length) await this.#another(event, endMs);
      const one = this.#events[next];
      if (one?.event === event && isWanted(one.data)) return one.data;
    }
  }

  /** All of them that were told. */
  all(event: string): readonly unknown[] {
    return this.#events.filter((one) => one.event === event).map(({ data }) => data);
  }

  async signal(name: 'TERM' | 'HUP' | 'USR2'): Promise<void> {
    await this.#guest.runOk(['sh', '-c', `kill -${name} ${this.#pid}`]);
  }

  /** Waits for its end; throws unless that was in order. */
  async exit(): Promise<void> {
    const { status, signal } = await this.#running;
    if (status !== 0) throw this.#failed(`it ended with ${signal ?? status}`);
  }

  async #another(event: string, endMs: number): Promise<void> {
    if (this.#hasEnded) throw this.#failed(`it ended before it told ${event}`);
    const timer = setTimeout(() => this.#wake(), Math.max(0, endMs - performance.now()));
    await this.#onEvent.promise;
    clearTimeout(timer);
    if (performance.now() >= endMs) throw this.#failed(`it did not tell ${event} within ${EVENT_MS / 1000} s`);
  }

  #hear(text: string, isEvents: boolean): void {
    if (!isEvents) {
      this.#said += text;
      return;
    }
    const lines = `${this.#rest}${text}`.split('\n');
    this.#rest = lines.pop() ?? '';
    for (const line of lines) {
      const told = JSON.parse(line) as Told;
      // The first thing that programs tell of themselves.
      if (typeof told.data === 'number') this.#pid = told.data;
      this.#events.push(told);
    }
    this.#wake();
  }

  #wake(): void {
    this.#onEvent.resolve();
    this.#onEvent = Promise.withResolvers();
  }

  #failed(what: string): MillraceError {
    const last = this.#events.slice(-6).map((one) => JSON.stringify(one).slice(0, 400));
    return new MillraceError('MILLRACE_ERR_FAILED', `${this.#name}: ${what}\n${[...last, this.#said].join('\n')}`);
  }
}
