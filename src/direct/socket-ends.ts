// The addresses of a socket that a program handed over, as people and peers know them.

import { isIPv4 } from 'node:net';
import { type Address, type Fd, formatAddress, Socket } from '../native/index.ts';
import type { SocketEnds } from './connection.ts';

const MAPPED = '::ffff:';

export function readEnds(socket: Fd): SocketEnds {
  const [local, remote] = [Socket.localAddressOf(socket), Socket.peerAddressOf(socket)].map(plainOf);
  return {
    local: local === undefined ? '' : formatAddress(local),
    remote: remote === undefined ? '' : formatAddress(remote),
    remoteHost: remote?.host ?? '',
    netns: Socket.netnsCookieOf(socket),
  };
}

type IpAddress = Exclude<Address, { readonly family: 'unix' }>;

/** An IPv4 address of an IPv6 socket is an IPv4 address. */
function plainOf(address: Address | undefined): IpAddress | undefined {
  if (address === undefined || address.family === 'unix') return undefined;
  const { host, port } = address;
  const rest = host.startsWith(MAPPED) ? host.slice(MAPPED.length) : '';
  return isIPv4(rest) ? { family: 'ipv4', host: rest, port } : address;
}
