// The programs of this host that have the library, among the peers and lanes of the daemon: which
// peers may have the other ends of their connections, and over which links those go.

import { dirname } from 'node:path';
import type { Config } from '../config/index.ts';
import { DirectServer, type DirectWord, type LibraryNews, type Mesh } from '../direct/index.ts';
import type { FromLane } from '../lane/index.ts';
import { publishError } from '../status/index.ts';
import { directSocketPath } from '../system/index.ts';
import type { PeerLanes } from './peer.ts';
import type { PeerTable } from './peer-table.ts';

interface DirectMeshParts {
  /** This node's name. */
  readonly name: string;
  readonly peers: Pick<PeerTable, 'get' | 'peersFor'>;
  readonly lanes: PeerLanes;
  readonly control: { tellDirect(peer: string, word: DirectWord): void };
}

export class DirectMesh implements Mesh {
  readonly name: string;
  readonly lanes: PeerLanes;
  readonly #peers: DirectMeshParts['peers'];
  readonly #control: DirectMeshParts['control'];
  #turn = 0;

  constructor({ name, peers, lanes, control }: DirectMeshParts) {
    this.name = name;
    this.lanes = lanes;
    this.#peers = peers;
    this.#control = control;
  }

  peersFor(host: string): readonly string[] {
    return this.#peers.peersFor(host);
  }

  tell(peer: string, word: DirectWord): void {
    this.#control.tellDirect(peer, word);
  }

  nextLink(name: string): number | undefined {
    const peer = this.#peers.get(name);
    if (peer === undefined || peer.linkCount === 0) return undefined;
    const first = this.#turn % peer.linkCount;
    if (!peer.isLinkUp(first)) peer.wantLink(first);
    // Meanwhile one of those that are up, if any is.
    const links = Array.from({ length: peer.linkCount }, (_, index) => (first + index) % peer.linkCount);
    const link = links.find((each) => peer.isLinkUp(each));
    if (link !== undefined) this.#turn++;
    return link;
  }

  wireOf(peer: string, link: number): string {
    return this.#peers.get(peer)?.wireOf(link) ?? '';
  }

  isLinkUp(peer: string, link: number): boolean {
    return this.#peers.get(peer)?.isLinkUp(link) === true;
  }
}

/** Without it programs use TCP as ever, so the daemon starts without it. */
export function startDirect(
  { direct, api, instance }: Config,
  mesh: Mesh,
  news: LibraryNews,
  hasRoom: () => boolean,
): DirectServer | undefined {
  if (!direct.enabled) return undefined;
  try {
    const socketPath = directSocketPath(instance, dirname(api.socket));
    return DirectServer.start({ ...direct, socketPath, mesh, news, hasRoom });
  } catch (error) {
    if (!(error instanceof Error && 'code' in error)) throw error;
    const message = `${error.message}; connections between programs stay on TCP (direct.enabled: false turns this off)`;
    publishError({ where: 'direct', message, code: String(error.code), peer: '' });
    return undefined;
  }
}

/** What lanes say that matters to direct connections. */
export function tellDirectOf(message: FromLane, direct: DirectServer): void {
  if (message.kind === 'state' && message.state === 'up') direct.hear({ kind: 'linkUp', peer: message.peer });
  else if (message.kind === 'unmirrored') direct.hear(message);
}
