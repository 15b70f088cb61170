// Peers from etcd: registers this node and follows the others. While etcd cannot be reached, the
// last known ones stay.

import { setTimeout as delay } from 'node:timers/promises';
import { UsageError } from '../errors.ts';
import { PacedTask } from '../pace/index.ts';
import { type DirectoryPeer, type PeerDirectory, PeerList, type PeersListener } from './directory.ts';
import { CompactedError, EtcdClient, type EtcdEvent } from './etcd-client.ts';
import type { EtcdTls } from './etcd-http.ts';
import { EtcdRegistration } from './etcd-registration.ts';
import { decodeNodeEntry, encodeNodeValue, type NodePlace, nodesPrefix } from './node-entry.ts';
import { MAX_NODES, NodeTable } from './node-table.ts';

export interface EtcdDirectoryOptions {
  /** At least one; they are tried in turn. */
  readonly endpoints: readonly string[];
  readonly prefix: string;
  readonly leaseSeconds: number;
  /** The entry of this node, for its peers. */
  readonly self: NodePlace;
  readonly username?: string;
  readonly password?: string;
  readonly tls?: EtcdTls;
  /**
   * Peers that an earlier directory knew: they stay until etcd was reached, and then for the grace
   * time.
   */
  readonly known?: readonly DirectoryPeer[];
  /** Called with a line for the log, once for each new problem. */
  readonly onError?: (message: string) => void;
  /** Called when `problem` has changed; '' when there is none. */
  readonly onProblem?: (problem: string) => void;
  /** Closes the directory when it is aborted. */
  readonly signal?: AbortSignal;
}

const FIRST_RETRY_MS = 100;
const LAST_RETRY_MS = 3000;
const LEAVE_MS = 1000;
/**
 * To tell of a change takes as long as there are nodes: where many come and go, it is told of many
 * at once, and takes no more than this share of a processor in the long run.
 */
const PUBLISH_SHARE = 1 / 20;
const PUBLISH_PAUSE_MS = 20;
const PUBLISH_SAVED_MS = 50;

export class EtcdDirectory implements PeerDirectory {
  readonly #options: EtcdDirectoryOptions;
  readonly #nodes: string;
  readonly #list = new PeerList();
  readonly #table: NodeTable;
  readonly #registration: EtcdRegistration;
  readonly #end = new AbortController();
  readonly #running: Promise<void>;
  readonly #publishing = new PacedTask({
    run: () => this.#publish(),
    leastPauseMs: PUBLISH_PAUSE_MS,
    maxShare: PUBLISH_SHARE,
    savedMs: PUBLISH_SAVED_MS,
  });
  #sweep: NodeJS.Timeout | undefined;
  #problem = 'etcd was not reached yet';
  #endpoint = 0;
  /** Attempts since the nodes could last be listed. */
  #failures = 0;
  #closing: Promise<void> | undefined;

  /** Does not wait for etcd: a daemon can start without it. */
  static start(options: EtcdDirectoryOptions): EtcdDirectory {
    const { self, endpoints } = options;
    if (endpoints.length === 0) throw new UsageError('find peers by etcd: there are no endpoints; give at least one');
    try {
      decodeNodeEntry(self.name, Buffer.from(encodeNodeValue(self)));
    } catch (error) {
      // Other nodes would ignore the entry, and this one would not learn of it.
      const what = `register ${self.name} at ${self.host} port ${self.port} in etcd`;
      throw new UsageError(`${what}: ${(error as Error).message}`, { cause: error });
    }
    return new EtcdDirectory(options);
  }

  private constructor(options: EtcdDirectoryOptions) {
    const { prefix, leaseSeconds, self, onError = () => {} } = options;
    this.#options = options;
    this.#nodes = nodesPrefix(prefix);
    // By then every living node has noticed that etcd is back.
    this.#table = new NodeTable(self.name, leaseSeconds * 1000 + LAST_RETRY_MS, onError);
    this.#table.remember(options.known ?? []);
    this.#list.replace(this.#table.peers);
    this.#registration = new EtcdRegistration(self, prefix, leaseSeconds);
    this.#running = this.#run();
    options.signal?.addEventListener('abort', this.#onAbort, { once: true });
    if (options.signal?.aborted === true) this.#onAbort();
  }

  get peers(): readonly DirectoryPeer[] {
    return this.#list.peers;
  }

  get problem(): string {
    return this.#problem;
  }

  onChange(listener: PeersListener): void {
    this.#list.listen(listener);
  }

  /** Removes this node's entry from etcd, if etcd can be reached. */
  close(): Promise<void> {
    this.#closing ??= this.#close(true);
    return this.#closing;
  }

  /**
   * Stops, and leaves this node's entry to a successor at the same address; without one, the lease
   * expires.
   */
  abandon(): Promise<void> {
    this.#closing ??= this.#close(false);
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  readonly #onAbort = (): void => void this.close();

  async #close(isLeaving: boolean): Promise<void> {
    this.#options.signal?.removeEventListener('abort', this.#onAbort);
    this.#list.silence();
    this.#end.abort();
    this.#publishing[Symbol.dispose]();
    clearTimeout(this.#sweep);
    await this.#running;
    if (!isLeaving) return;
    try {
      await this.#registration.leave(this.#client(AbortSignal.timeout(LEAVE_MS)));
    } catch {
      // The lease expires by itself.
    }
  }

  async #run(): Promise<void> {
    const { signal } = this.#end;
    const { endpoints } = this.#options;
    while (!signal.aborted) {
      try {
        await this.#follow();
      } catch (error) {
        if (signal.aborted) return;
        // A compaction is no problem: this side was slow, and lists everything again.
        if (!(error instanceof CompactedError)) this.#setProblem((error as Error).message);
      }
      // Each member of the cluster is tried once before the delay grows.
      const round = Math.floor(this.#failures++ / endpoints.length);
      this.#endpoint = (this.#endpoint + 1) % endpoints.length;
      const pauseMs = Math.min(FIRST_RETRY_MS * 2 ** round, LAST_RETRY_MS);
      // The jitter keeps nodes that lost etcd together from coming back together.
      await delay(pauseMs * (0.5 + Math.random() / 2), undefined, { signal }).catch(() => {});
    }
  }

  /** Registers, lists and watches at one member of the cluster; ends with an error only. */
  async #follow(): Promise<void> {
    const client = this.#client(this.#end.signal);
    await this.#registration.renew(client);
    const { entries, revision } = await client.list(this.#nodes, MAX_NODES + 1);
    const own = entries.find(({ key }) => this.#nameOf(key) === this.#options.self.name);
    // The entry was lost before the list, and the watch only sees changes after it.
    if (own === undefined || !this.#registration.isOwn({ ...own, isDelete: false }))
      await this.#registration.renew(client);
    this.#table.replace(
      entries.map(({ key, value }) => ({ name: this.#nameOf(key), value })),
      performance.now(),
    );
    this.#publish();
    this.#failures = 0;
    this.#setProblem(this.#registration.conflict);
    const scope = new AbortController();
    const signal = AbortSignal.any([scope.signal, this.#end.signal]);
    const parts = [this.#watch(client, revision, signal), this.#keepAlive(client, signal)];
    try {
      await Promise.race(parts);
    } finally {
      scope.abort();
      await Promise.allSettled(parts);
    }
  }

  async #watch(client: EtcdClient, revision: string, signal: AbortSignal): Promise<void> {
    for await (const events of client.watch(this.#nodes, revision, signal)) {
      for (const event of events) this.#apply(event);
      this.#publishing.request();
      const own = events.findLast(({ key }) => this.#nameOf(key) === this.#options.self.name);
      if (own === undefined || this.#registration.isOwn(own)) continue;
      await this.#registration.renew(client);
      this.#setProblem(this.#registration.conflict);
    }
  }

  async #keepAlive(client: EtcdClient, signal: AbortSignal): Promise<void> {
    for (;;) {
      await delay((this.#options.leaseSeconds * 1000) / 3, undefined, { signal });
      await this.#registration.keepAlive(client);
      this.#setProblem(this.#registration.conflict);
    }
  }

  #apply({ key, value, isDelete }: EtcdEvent): void {
    const name = this.#nameOf(key);
    if (isDelete) this.#table.remove(name);
    else this.#table.put({ name, value });
  }

  #publish(): void {
    this.#table.sweep(performance.now());
    clearTimeout(this.#sweep);
    const { nextSweepMs } = this.#table;
    if (Number.isFinite(nextSweepMs)) {
      this.#sweep = setTimeout(() => this.#publish(), Math.max(1, nextSweepMs - performance.now()));
    }
    this.#list.replace(this.#table.peers);
  }

  #nameOf(key: string): string {
    return key.slice(this.#nodes.length);
  }

  #setProblem(problem: string): void {
    if (problem === this.#problem) return;
    this.#problem = problem;
    if (problem !== '') this.#options.onError?.(problem);
    this.#options.onProblem?.(problem);
  }

  #client(signal: AbortSignal): EtcdClient {
    const { endpoints, leaseSeconds, username, password, tls } = this.#options;
    // A call that takes longer leaves no time to try another member before the lease expires.
    const timeoutMs = Math.floor(Math.min(5000, Math.max(1000, (leaseSeconds * 1000) / 3)));
    return new EtcdClient(
      {
        endpoint: endpoints[this.#endpoint] ?? '',
        timeoutMs,
        ...(username !== undefined && { username }),
        ...(password !== undefined && { password }),
        ...(tls !== undefined && { tls }),
      },
      signal,
    );
  }
}
