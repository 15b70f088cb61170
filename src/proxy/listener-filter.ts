// What a peer may announce: listeners of its own host. An address that is known to be another's, or ours, is not believed.

import { type Endpoint, formatEndpoint, ownAddresses } from '../steering/index.ts';
import type { ControlPeerView } from './control/index.ts';

export class ListenerFilter {
  readonly #others: (peer: string) => readonly ControlPeerView[];
  readonly #onTrouble: (where: string, message: string, code: string, peer: string) => void;

  constructor(
    others: (peer: string) => readonly ControlPeerView[],
    onTrouble: (where: string, message: string, code: string, peer: string) => void,
  ) {
    this.#others = others;
    this.#onTrouble = onTrouble;
  }

  filter(peer: string, endpoints: readonly Endpoint[]): readonly Endpoint[] {
    const foreign = new Set([...this.#others(peer).map((view) => view.peer.host), ...ownAddresses()]);
    const kept = endpoints.filter((endpoint) => !foreign.has(hostOf(endpoint)));
    const [first] = endpoints.filter((endpoint) => foreign.has(hostOf(endpoint)));
    if (first !== undefined) {
      const message = `peer ${peer} announced ${formatEndpoint(first)}, which is not its host's; it is not believed`;
      this.#onTrouble('channel', message, '', peer);
    }
    return kept;
  }
}

function hostOf(endpoint: Endpoint): string {
  return formatEndpoint(endpoint)
    .replace(/:\d+$/, '')
    .replace(/^\[|\]$/g, '');
}
