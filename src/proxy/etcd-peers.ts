// The peers from the etcd that the config names, if any; a reload may replace it while the daemon
// runs.

import { readFile } from 'node:fs/promises';
import { isDeepStrictEqual } from 'node:util';
import type { Config } from '../config/index.ts';
import {
  type DirectoryPeer,
  EtcdDirectory,
  type EtcdDirectoryOptions,
  type EtcdTls,
  type PeerDirectory,
  PeerList,
  type PeersListener,
} from '../peers/index.ts';

/** What the config says, with the contents of the files that it names. */
type EtcdSpec = Omit<EtcdDirectoryOptions, 'self' | 'known' | 'signal' | 'onError' | 'onProblem'>;

interface EtcdPeersOptions extends Pick<EtcdDirectoryOptions, 'self'> {
  readonly onError: (message: string) => void;
}

export class EtcdPeers implements PeerDirectory {
  readonly #options: EtcdPeersOptions;
  readonly #list = new PeerList();
  readonly #ending = new Set<Promise<void>>();
  #spec: EtcdSpec | undefined;
  #current: EtcdDirectory | undefined;
  #onProblem: () => void = () => {};

  constructor(options: EtcdPeersOptions) {
    this.#options = options;
  }

  get peers(): readonly DirectoryPeer[] {
    return this.#list.peers;
  }

  get problem(): string {
    return this.#current?.problem ?? '';
  }

  onChange(listener: PeersListener): void {
    this.#list.listen(listener);
  }

  /** Called when `problem` may have changed. */
  onProblem(listener: () => void): void {
    this.#onProblem = listener;
  }

  /**
   * Uses this etcd from now on, or none. False when it is the same as before. Known peers stay
   * until the new one has answered and for the time of a lease after that, so that nodes need not
   * change over at the same moment.
   */
  use(spec: EtcdSpec | undefined): boolean {
    if (isDeepStrictEqual(spec, this.#spec)) return false;
    const before = this.#current;
    const { self, onError } = this.#options;
    const onProblem = (): void => this.#onProblem();
    const next = spec && EtcdDirectory.start({ ...spec, onError, onProblem, self, known: before?.peers ?? [] });
    this.#spec = spec;
    this.#current = next;
    next?.onChange((peers) => this.#list.replace(peers));
    this.#list.replace(next?.peers ?? []);
    // When the new directory finds this node's entry, it takes the entry over.
    if (before !== undefined) this.#await(next === undefined ? before.close() : before.abandon());
    onProblem();
    return true;
  }

  async close(): Promise<void> {
    this.#list.silence();
    await Promise.all([...this.#ending, this.#current?.close()]);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #await(end: Promise<void>): void {
    this.#ending.add(end);
    void end.then(() => this.#ending.delete(end));
  }
}

/** Reads the files that the config names; throws when one cannot be read. */
export async function etcdSpecOf({ etcd }: Config): Promise<EtcdSpec | undefined> {
  if (etcd === undefined) return undefined;
  const { endpoints, prefix, leaseSeconds, username, password, ca, cert, key } = etcd;
  return {
    endpoints,
    prefix,
    leaseSeconds,
    ...(username !== undefined && { username }),
    ...(password !== undefined && { password }),
    ...((ca !== undefined || cert !== undefined) && { tls: await etcdTls(ca, cert, key) }),
  };
}

async function etcdTls(ca?: string, cert?: string, key?: string): Promise<EtcdTls> {
  const read = async (path: string | undefined): Promise<Buffer | undefined> =>
    path === undefined ? undefined : readFile(path);
  const [caBytes, certBytes, keyBytes] = await Promise.all([ca, cert, key].map(read));
  return {
    ...(caBytes !== undefined && { ca: caBytes }),
    ...(certBytes !== undefined && { cert: certBytes }),
    ...(keyBytes !== undefined && { key: keyBytes }),
  };
}
