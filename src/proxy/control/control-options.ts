// Checks what a control plane is asked to be before it is started.

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

/** Throws a UsageError when no control plane can be made of it. */
export function checkOptions(options: ControlPlaneOptions): void {
  const { heartbeatMs, deadMs } = beatOf(options);
  if (!(heartbeatMs > 0) || !(deadMs >= 2 * heartbeatMs)) {
    throw new UsageError(`a peer is given up after ${deadMs} ms: less than two heartbeats of ${heartbeatMs} ms`);
  }
  if (options.listen.length === 0) throw new UsageError('no address where peers could call');
  checkPeers(options.name, options.peers);
  checkHello({ ...options.hello, name: options.name });
  checkSecurity(options.security);
}

/** Throws a UsageError when daemons with these names and addresses could not live together. */
export function checkPeers(name: string, peers: readonly ControlPeer[]): void {
  for (const one of [name, ...peers.map((peer) => peer.name)]) {
    if (!isNodeName(one)) throw new UsageError(`'${one}' is no name for a daemon: letters, digits, '.', '_' and '-'`);
  }
  const seen = new Set([name]);
  for (const peer of peers) {
    if (seen.has(peer.name)) throw new UsageError(`two daemons are called ${peer.name}`);
    seen.add(peer.name);
    if (peer.host === '' || !Number.isInteger(peer.port) || peer.port < 1 || peer.port > 65_535) {
      throw new UsageError(`peer ${peer.name}: '${peer.host}' port ${peer.port} is no address to call`);
    }
  }
}
