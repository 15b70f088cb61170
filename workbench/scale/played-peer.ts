// A peer that is played: the real control protocol, and nothing behind it. It announces endpoints
// where nothing listens, does not hear knocks, and answers no offer of a link.

import { ControlPlane, makeIncarnation } from '../../src/proxy/control/index.ts';
import { type IpEndpoint, parseIpEndpoint } from '../../src/steering/index.ts';
import { type PlaySpec, playedAddress, playedEndpoint, playedName } from './play-protocol.ts';

/** What all played peers tell of themselves. */
export interface PlayEvents {
  onUp(index: number): void;
  onDown(index: number, reason: string): void;
  onDialFailed(): void;
  onListeners(added: readonly IpEndpoint[], removed: readonly IpEndpoint[]): void;
}

export class PlayedPeer implements AsyncDisposable {
  readonly #plane: ControlPlane;
  readonly #endpoints = new Map<string, IpEndpoint>();

  /** Dials the daemon, or waits for it, by their names. */
  static async start(spec: PlaySpec, index: number, events: PlayEvents): Promise<PlayedPeer> {
    const host = playedAddress(index);
    const name = playedName(index, spec.dialed);
    const plane: ControlPlane = await ControlPlane.start({
      name,
      listen: [{ host, port: spec.daemon.port }],
      security: { kind: 'insecure' },
      hello: { incarnation: makeIncarnation(), lanes: 1, wires: ['soft-tcp'], admission: 'packets' },
      peers: [],
      handlers: {
        onUp: () => events.onUp(index),
        onDown: (_peer, reason) => events.onDown(index, reason),
        onRevoked: () => {},
        onDialFailed: () => events.onDialFailed(),
        onAddresses: (_name, _hosts, known) => known(),
        onListeners: (_name, added, removed) => events.onListeners(added, removed),
        onLibraryListeners: () => {},
        onKnock: (from, message) => {
          if (message.kind !== 'knock') return;
          plane.tellAdmission(from, { kind: 'closed', number: message.number, reason: 'a played peer hears no SYN' });
        },
        onGate: () => {},
        onDirect: () => {},
        // An offer that is declined is made again at once: this one is left to its deadline.
        onLink: () => {},
        onError: ({ message }) => void process.stderr.write(`${name}: ${message}\n`),
      },
    });
    const peer = new PlayedPeer(plane);
    for (let n = 0; n < spec.endpointsEach; n++) peer.#change(playedEndpoint(index, n), true);
    await plane.setAddresses([host]);
    peer.#tell();
    plane.setPeers([{ ...spec.daemon, source: 'config' }]);
    return peer;
  }

  private constructor(plane: ControlPlane) {
    this.#plane = plane;
  }

  announce(endpoint: string, isThere: boolean): void {
    this.#change(endpoint, isThere);
    this.#tell();
  }

  #change(endpoint: string, isThere: boolean): void {
    if (isThere) this.#endpoints.set(endpoint, parseIpEndpoint(endpoint));
    else this.#endpoints.delete(endpoint);
  }

  #tell(): void {
    const all = [...this.#endpoints.values()];
    this.#plane.setListeners(() => all);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#plane.close();
  }
}
