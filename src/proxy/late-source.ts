// The source of the API while the daemon starts: it answers that the daemon is starting, then hands
// on to the daemon.

import type { Config } from '../config/index.ts';
import { MillraceError } from '../errors.ts';
import type { ConnectionStatus, DaemonStatus, StatusSource } from '../status/index.ts';
import { packageVersion } from '../system/index.ts';

export class LateSource implements StatusSource {
  readonly #config: Config;
  readonly #startedMs = Date.now();
  #source: StatusSource | undefined;

  constructor(config: Config) {
    this.#config = config;
  }

  /** Hands all requests to this source from now on. */
  use(source: StatusSource): void {
    this.#source = source;
  }

  async status(): Promise<DaemonStatus> {
    return this.#source?.status() ?? this.#starting();
  }

  async connections(): Promise<readonly ConnectionStatus[]> {
    return this.#source?.connections() ?? [];
  }

  async explain(which: string): Promise<readonly string[]> {
    return this.#source?.explain(which) ?? ['the daemon is starting'];
  }

  async reload(): Promise<readonly string[]> {
    if (this.#source === undefined)
      throw new MillraceError(
        'MILLRACE_ERR_NOT_RUNNING',
        'reload: the daemon is still starting; try again when it is ready',
      );
    return this.#source.reload();
  }

  get breakLinks(): StatusSource['breakLinks'] {
    return this.#source?.breakLinks;
  }

  #starting(): DaemonStatus {
    const { node, instance, cgroup, rules, channel } = this.#config;
    const { user, system } = process.cpuUsage();
    return {
      v: 1,
      node,
      instance,
      version: packageVersion(),
      pid: process.pid,
      startedMs: this.#startedMs,
      state: 'starting',
      notReady: ['it is starting'],
      cgroup,
      rules,
      peers: [],
      lanes: [],
      verdicts: {},
      listenersLeftOut: 0,
      lostEvents: 0,
      overload: { isOverloaded: false, descriptors: 0, maxDescriptors: 0 },
      counters: { opened: 0, accepted: 0, refused: 0, resets: 0, unsteered: 0, bytesOut: 0, bytesIn: 0 },
      direct: { programs: 0, waiting: 0, connections: 0, mirrored: 0, promoted: 0, declined: 0 },
      memory: { rssBytes: process.memoryUsage.rss(), heldBytes: 0, budgetBytes: channel.memoryBytes },
      cpuSeconds: (user + system) / 1e6,
    };
  }
}
