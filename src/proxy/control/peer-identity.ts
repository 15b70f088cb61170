// Who a caller is: by its certificate, or without TLS by the address it calls from.

import { isIP } from 'node:net';
import { ProtocolError } from '../../errors.ts';
import { ip } from '../../native/index.ts';
import { endpointOf, formatIpEndpoint } from '../../steering/index.ts';
import { nameMismatch } from '../../tls/index.ts';
import type { Caller } from './control-server.ts';
import type { ControlAddress, ControlPeer, ControlSecurity } from './control-spec.ts';

/** Throws a ProtocolError when the caller is not the peer it says it is. `peer`: who is known by that name. */
export function identifyDialer(
  ownName: string,
  saidName: string,
  peer: ControlPeer | undefined,
  { certificate, from }: Pick<Caller, 'certificate' | 'from'>,
): void {
  const problem = certificate === undefined ? undefined : nameMismatch(certificate, saidName);
  if (problem !== undefined) throw new ProtocolError(problem);
  if (peer === undefined) throw new ProtocolError(`no peer is called ${saidName} here`);
  if (saidName > ownName)
    throw new ProtocolError(`a call from ${saidName} to ${ownName}: the smaller name has to call`);
  if (certificate !== undefined) return;
  if (isIP(peer.host) === 0) {
    throw new ProtocolError(
      `${saidName} is known as ${peer.host}: without TLS a peer has to be known by its IP address`,
    );
  }
  if (!isSameHost(from, peer.host)) throw new ProtocolError(`${saidName} is expected from ${peer.host}`);
}

/** Where a call comes from, so that the peer knows us by it. Undefined when that does not matter. */
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
