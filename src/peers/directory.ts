// Who the other nodes are, wherever that is known from.

export interface DirectoryPeer {
  readonly name: string;
  readonly host: string;
  readonly port: number;
  readonly source: 'config' | 'etcd';
}

export type PeersListener = (peers: readonly DirectoryPeer[]) => void;

export interface PeerDirectory extends AsyncDisposable {
  /** Called with all of them when they have changed, not for those that are there already. */
  onChange(listener: PeersListener): void;
  /** By name, without this node. */
  readonly peers: readonly DirectoryPeer[];
  /** Why the peers may be out of date; '' when they are not. */
  readonly problem: string;
  close(): Promise<void>;
}

/** The peers of a directory, sorted, and who wants to hear of changes. */
export class PeerList {
  readonly #listeners: PeersListener[] = [];
  #peers: readonly DirectoryPeer[] = [];

  get peers(): readonly DirectoryPeer[] {
    return this.#peers;
  }

  listen(listener: PeersListener): void {
    this.#listeners.push(listener);
  }

  /** Tells the listeners if it is different. */
  replace(peers: Iterable<DirectoryPeer>): void {
    const sorted = [...peers].sort((left, right) => (left.name < right.name ? -1 : 1));
    if (isSame(sorted, this.#peers)) return;
    this.#peers = sorted;
    for (const listener of this.#listeners) listener(sorted);
  }

  /** Nobody hears of anything any more. */
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
