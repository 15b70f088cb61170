// Checks the options of a control plane before it starts.

import { UsageError } from '../../errors.ts';
import { isNodeName } from '../../text/index.ts';
import { checkSecurity } from '../../tls/index.ts';
import { checkHello } from './control-protocol.ts';
import type { ControlPeer, ControlPlaneOptions, HeartbeatSpec } from './control-spec.ts';

const DEFAULT_HEARTBEAT_MS = 1000;
const DEFAULT_DEAD_MS = 4000;

export function beatOf(options: Partial<HeartbeatSpec>): HeartbeatSpec {
  const { heartbeatMs = DEFAULT_HEARTBEAT_MS, deadMs = DEFAULT_DEAD_MS } = options;
  return { heartbeatMs, deadMs };
}

/** Throws a UsageError when they are invalid. */
export function checkOptions(options: ControlPlaneOptions): void {
  const { heartbeatMs, deadMs } = beatOf(options);
  if (!(heartbeatMs > 0) || !(deadMs >= 2 * heartbeatMs)) {
    throw new UsageError(
      `a dead time of ${deadMs} ms is less than two heartbeats of ${heartbeatMs} ms; make it longer`,
    );
  }
  if (options.listen.length === 0)
    throw new UsageError('there is no address for peers to connect to; give at least one');
  checkPeers(options.name, options.peers);
  checkHello({ ...options.hello, name: options.name });
  checkSecurity(options.security);
}

/** Throws a UsageError when a name or address is invalid, or a name comes twice. */
export function checkPeers(name: string, peers: readonly ControlPeer[]): void {
  for (const one of [name, ...peers.map((peer) => peer.name)]) {
    if (!isNodeName(one))
      throw new UsageError(`invalid node name "${one}": use letters, digits, '.', '-', '_' (at most 63)`);
  }
  const seen = new Set([name]);
  for (const peer of peers) {
    if (seen.has(peer.name)) throw new UsageError(`two nodes are called ${peer.name}; each needs a name of its own`);
    seen.add(peer.name);
    if (peer.host === '' || !Number.isInteger(peer.port) || peer.port < 1 || peer.port > 65_535) {
      throw new UsageError(
        `peer ${peer.name}: '${peer.host}' port ${peer.port} is not an address to dial; give a host and a port from 1 to 65535`,
      );
    }
  }
}
