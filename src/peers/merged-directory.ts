// Several directories as one. Of two peers with the same name the config's is used, then that of
// the earlier directory.

import { type DirectoryPeer, type PeerDirectory, PeerList, type PeersListener } from './directory.ts';

class MergedDirectory implements PeerDirectory {
  readonly #directories: readonly PeerDirectory[];
  readonly #list = new PeerList();

  constructor(directories: readonly PeerDirectory[]) {
    this.#directories = directories;
    for (const directory of directories) directory.onChange(() => this.#merge());
    this.#merge();
  }

  get peers(): readonly DirectoryPeer[] {
    return this.#list.peers;
  }

  get problem(): string {
    return this.#directories
      .map(({ problem }) => problem)
      .filter((problem) => problem !== '')
      .join('; ');
  }

  onChange(listener: PeersListener): void {
    this.#list.listen(listener);
  }

  /** Closes all merged directories, too. */
  async close(): Promise<void> {
    this.#list.silence();
    await Promise.all(this.#directories.map((directory) => directory.close()));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #merge(): void {
    const byName = new Map<string, DirectoryPeer>();
    for (const peer of this.#directories.flatMap(({ peers }) => peers)) {
      const known = byName.get(peer.name);
      if (known === undefined || (known.source !== 'config' && peer.source === 'config')) byName.set(peer.name, peer);
    }
    this.#list.replace(byName.values());
  }
}

export function mergeDirectories(...directories: readonly PeerDirectory[]): PeerDirectory {
  return new MergedDirectory(directories);
}
