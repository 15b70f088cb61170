// Programs that are killed: a pair of traffic programs beside those whose connections must hold.
// What they have at that moment may end in any way in which TCP could end it, but with right bytes.

import type { Outcome } from './conversation.ts';
import type { HostName } from './plan.ts';
import type { Traffic } from './traffic.ts';

export class Victims implements AsyncDisposable {
  readonly #start: (name: HostName) => Promise<Traffic>;
  readonly #alive = new Map<HostName, Traffic>();
  /** Those that are gone, with what they had told. */
  readonly #dead: Traffic[] = [];

  static async begin(names: readonly HostName[], start: (name: HostName) => Promise<Traffic>): Promise<Victims> {
    await using undo = new AsyncDisposableStack();
    const victims = undo.use(new Victims(start));
    for (const name of names) victims.#alive.set(name, await start(name));
    undo.move();
    return victims;
  }

  private constructor(start: (name: HostName) => Promise<Traffic>) {
    this.#start = start;
  }

  /** They open connections from now on. */
  start(): void {
    for (const traffic of this.#alive.values()) traffic.start();
  }

  /** Kills one, and starts another in its place. */
  async kill(name: HostName): Promise<void> {
    await this.#end(name);
    const next = await this.#start(name);
    this.#alive.set(name, next);
    next.start();
  }

  /** Connections whose bytes were wrong, or on which nothing moved any more. */
  get complaints(): readonly string[] {
    const all = [...this.#dead, ...this.#alive.values()].flatMap(({ outcomes }) => outcomes);
    return all.filter(isWrong).map(({ behaviour, seed, end, detail }) => {
      return `${behaviour} (seed ${seed}) at its ${end}, of a program that is killed at times: ${detail}`;
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(Array.from(this.#alive.keys(), (name) => this.#end(name)));
  }

  async #end(name: HostName): Promise<void> {
    const traffic = this.#alive.get(name);
    if (traffic === undefined) return;
    this.#alive.delete(name);
    this.#dead.push(traffic);
    await traffic[Symbol.asyncDispose]();
  }
}

/** A killed program's connections end early, by FIN or reset. */
function isWrong({ ending, detail }: Outcome): boolean {
  if (ending === 'wrong') return !detail.includes('the stream ended');
  return ending === 'stuck' || ending === 'failed';
}
