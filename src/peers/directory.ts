// A directory of the other nodes, and the list of peers that each kind of directory keeps.

export interface DirectoryPeer {
  readonly name: string;
  readonly host: string;
  readonly port: number;
  readonly source: 'config' | 'etcd';
}

export type PeersListener = (peers: readonly DirectoryPeer[]) => void;

export interface PeerDirectory extends AsyncDisposable {
  /**
   * Calls the listener with all peers whenever they change; not with those that are known already.
   */
  onChange(listener: PeersListener): void;
  /** By name, without this node. */
  readonly peers: readonly DirectoryPeer[];
  /** Why the peers may be out of date; '' when they are not. */
  readonly problem: string;
  close(): Promise<void>;
}

/** The sorted peers of a directory, and its listeners. */
export class PeerList {
  readonly #listeners: PeersListener[] = [];
  #peers: readonly DirectoryPeer[] = [];

  get peers(): readonly DirectoryPeer[] {
    return this.#peers;
  }

  listen(listener: PeersListener): void {
    this.#listeners.push(listener);
  }

  /** Calls the listeners if something is different. */
  replace(peers: Iterable<DirectoryPeer>): void {
    const sorted = [...peers].sort((left, right) => (left.name < right.name ? -1 : 1));
    if (isSame(sorted, this.#peers)) return;
    this.#peers = sorted;
    for (const listener of this.#listeners) listener(sorted);
  }

  /** Calls no listener any more. */
  silence(): void {
    this.#listeners.length = 0;
  }
}

function isSame(left: readonly DirectoryPeer[], right: readonly DirectoryPeer[]): boolean {
  return left.length === right.length && left.every((peer, index) => isEqual(peer, right[index]));
}

function isEqual(left: DirectoryPeer, right: DirectoryPeer | undefined): boolean {
  return (
    left.name === right?.name && left.host === right.host && left.port === right.port && left.source === right.source
  );
}
