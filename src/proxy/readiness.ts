// Tells when a daemon that was ready is not any more, and when it is again.

import { publishDaemon } from '../status/index.ts';

export interface Readable {
  /** Why it is not ready; empty when it is. */
  readonly notReady: readonly string[];
}

export class Readiness {
  readonly #of: Readable;
  readonly #node: string;
  readonly #instance: string;
  #isReady: boolean | undefined;

  constructor(of: Readable, node: string, instance: string) {
    this.#of = of;
    this.#node = node;
    this.#instance = instance;
  }

  /** It is ready for the first time; from now on, changes are told. */
  begin(): void {
    this.#isReady = true;
    this.#publish('ready', '');
    this.look();
  }

  /** It ends: what becomes of it is told by others. */
  end(): void {
    this.#isReady = undefined;
  }

  look(): void {
    if (this.#isReady === undefined) return;
    const reasons = this.#of.notReady;
    const isReady = reasons.length === 0;
    if (isReady === this.#isReady) return;
    this.#isReady = isReady;
    this.#publish(isReady ? 'ready' : 'not-ready', reasons.join('; '));
  }

  #publish(what: 'ready' | 'not-ready', detail: string): void {
    publishDaemon({ what, node: this.#node, instance: this.#instance, detail });
  }
}
