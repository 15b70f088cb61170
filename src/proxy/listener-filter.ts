// What a peer may announce: listeners of its own host. An address that is known to be another's, or ours, is not believed.

import { formatIpEndpoint, type IpEndpoint, ownAddresses } from '../steering/index.ts';
import type { ControlPeerView } from './control/index.ts';

export class ListenerFilter {
  readonly #others: (peer: string) => readonly ControlPeerView[];
  readonly #onError: (where: string, message: string, code: string, peer: string) => void;

  constructor(
    others: (peer: string) => readonly ControlPeerView[],
    onError: (where: string, message: string, code: string, peer: string) => void,
  ) {
    this.#others = others;
    this.#onError = onError;
  }

  filter(peer: string, endpoints: readonly IpEndpoint[]): readonly IpEndpoint[] {
    const foreign = new Set([...this.#others(peer).map((view) => view.peer.host), ...ownAddresses()]);
    const kept = endpoints.filter((endpoint) => !foreign.has(hostOf(endpoint)));
    const [first] = endpoints.filter((endpoint) => foreign.has(hostOf(endpoint)));
    if (first !== undefined) {
      const message = `peer ${peer} announced ${formatIpEndpoint(first)}, which is not its host's; it is not believed`;
      this.#onError('channel', message, '', peer);
    }
    return kept;
  }
}

function hostOf(endpoint: IpEndpoint): string {
  return formatIpEndpoint(endpoint)
    .replace(/:\d+$/, '')
    .replace(/^\[|\]$/g, '');
}
