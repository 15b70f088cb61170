// How far a daemon is, and whether it is ready: publishes when a daemon that was ready is not any
// more, and when it is again.

import type { PeerDirectory } from '../peers/index.ts';
import { type DaemonStatus, publishDaemon } from '../status/index.ts';

export class Readiness {
  readonly #directory: Pick<PeerDirectory, 'peers' | 'problem'>;
  readonly #problems: () => readonly string[];
  readonly #daemon: { readonly node: string; readonly instance: string };
  #state: DaemonStatus['state'] = 'starting';
  /** What was published last. */
  #wasReady = false;

  /** `problems`: what keeps a daemon that has started from being ready, besides its directory. */
  constructor(
    directory: Pick<PeerDirectory, 'peers' | 'problem'>,
    problems: () => readonly string[],
    daemon: { readonly node: string; readonly instance: string },
  ) {
    this.#directory = directory;
    this.#problems = problems;
    this.#daemon = daemon;
  }

  get state(): DaemonStatus['state'] {
    return this.#state;
  }

  /** Why the daemon is not ready; empty when it is. */
  get notReady(): readonly string[] {
    if (this.#state !== 'ready') return [`it is ${this.#state}`];
    const { peers, problem } = this.#directory;
    return [...(problem !== '' && peers.length === 0 ? [problem] : []), ...this.#problems()];
  }

  /** The daemon has started. */
  begin(): void {
    this.#state = 'ready';
    this.#publish(true, '');
    this.check();
  }

  /** The daemon ends: it publishes that itself. */
  end(): void {
    this.#state = 'draining';
  }

  /** Something changed that the readiness depends on. */
  check(): void {
    if (this.#state !== 'ready') return;
    const reasons = this.notReady;
    const isReady = reasons.length === 0;
    if (isReady !== this.#wasReady) this.#publish(isReady, reasons.join('; '));
  }

  #publish(isReady: boolean, detail: string): void {
    this.#wasReady = isReady;
    const what = isReady ? 'ready' : 'not-ready';
    publishDaemon({ what, ...this.#daemon, detail });
  }
}
