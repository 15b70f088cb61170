// What lanes tell the main thread, handed on to the peers it is about, to subscribers and to the
// log.

import type { FromLane } from '../lane/index.ts';
import { publishConnection } from '../status/index.ts';
import type { ErrorThrottle } from './control/index.ts';
import type { PeerTable } from './peer-table.ts';

interface LaneLines {
  /** Of peers that break the protocol, and of lanes themselves. */
  readonly ofPeers: ErrorThrottle;
  readonly ofLanes: ErrorThrottle;
}

export function hearLane(message: FromLane, peers: PeerTable, { ofPeers, ofLanes }: LaneLines): void {
  switch (message.kind) {
    case 'link':
      peers.get(message.peer)?.sendLink(message.link, message.body);
      break;
    case 'state':
      peers.get(message.peer)?.linkChanged(message.link, message);
      break;
    case 'protocolError':
      ofPeers.report(
        `peer ${message.peer} broke the protocol: ${message.reason}; its links and control connection are closed`,
        message.peer,
      );
      peers.get(message.peer)?.refuse(message.reason);
      break;
    case 'connection':
      publishConnection(message.event);
      break;
    case 'error':
      ofLanes.report(message.message);
      break;
  }
}
