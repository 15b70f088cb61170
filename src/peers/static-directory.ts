// The peers that the config lists.

import { type DirectoryPeer, type PeerDirectory, PeerList, type PeersListener } from './directory.ts';

type StaticPeer = Omit<DirectoryPeer, 'source'>;

export class StaticDirectory implements PeerDirectory {
  readonly #list = new PeerList();
  readonly problem = '';

  constructor(peers: readonly StaticPeer[]) {
    this.replace(peers);
  }

  get peers(): readonly DirectoryPeer[] {
    return this.#list.peers;
  }

  onChange(listener: PeersListener): void {
    this.#list.listen(listener);
  }

  /** The peers of a config that was read again. */
  replace(peers: readonly StaticPeer[]): void {
    this.#list.replace(peers.map(({ name, host, port }) => ({ name, host, port, source: 'config' })));
  }

  async close(): Promise<void> {
    this.#list.silence();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
