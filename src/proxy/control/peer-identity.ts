// Checks that a dialer is the peer that it says it is: by its certificate, or without TLS by its IP
// address.

import { isIP } from 'node:net';
import { ProtocolError } from '../../errors.ts';
import { ip } from '../../native/index.ts';
import { endpointOf, formatIpEndpoint } from '../../steering/index.ts';
import { nameMismatch } from '../../tls/index.ts';
import type { Incoming } from './control-server.ts';
import type { ControlAddress, ControlPeer, ControlSecurity } from './control-spec.ts';

/**
 * Throws a ProtocolError when the dialer is not the peer that it says it is. `peer`: the one known
 * by that name.
 */
export function identifyDialer(
  ownName: string,
  saidName: string,
  peer: ControlPeer | undefined,
  { certificate, from }: Pick<Incoming, 'certificate' | 'from'>,
): void {
  const problem = certificate === undefined ? undefined : nameMismatch(certificate, saidName);
  if (problem !== undefined) throw new ProtocolError(problem);
  if (peer === undefined) throw new ProtocolError(`no peer is called ${saidName} here`);
  if (saidName > ownName)
    throw new ProtocolError(`${saidName} dialed ${ownName}: the daemon with the smaller name has to dial`);
  if (certificate !== undefined) return;
  if (isIP(peer.host) === 0) {
    throw new ProtocolError(
      `${saidName} is known as ${peer.host}: without TLS a peer has to be known by its IP address`,
    );
  }
  if (!isSameHost(from, peer.host)) throw new ProtocolError(`${saidName} is expected from ${peer.host}`);
}

/**
 * The local address to dial from, by which the peer identifies this side. Undefined when the
 * certificate does that.
 */
export function localAddressFor(
  peer: ControlPeer,
  security: ControlSecurity,
  listen: readonly ControlAddress[],
): string | undefined {
  if (security.kind === 'tls') return undefined;
  return listen.find(({ host }) => isIP(host) === isIP(peer.host) && !isAnyAddress(host))?.host;
}

function isSameHost(from: string, expected: string): boolean {
  // However they are written.
  const canonical = (host: string): string => formatIpEndpoint(endpointOf(ip(host, 0)));
  return canonical(from) === canonical(expected);
}

function isAnyAddress(host: string): boolean {
  return host === '0.0.0.0' || host === '::';
}
