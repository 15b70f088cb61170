// Opens the host half of a transport in a guest's thread, from the plain data that the main thread
// hands it.

import { Socket } from '../../native/index.ts';
import type { HostTransport } from '../protocol/index.ts';
import { QemuHost, type QemuHostSpec } from './qemu/host-transport.ts';
import { UnixHost, type UnixHostSpec } from './unix/host-transport.ts';

/** A new transport adds its spec here. */
export type HostTransportSpec = UnixHostSpec | QemuHostSpec;

/**
 * Closes the descriptors of a spec that no thread has adopted: the guest sees that it is not
 * served.
 */
export function closeHostTransport(spec: HostTransportSpec): void {
  const fds = spec.kind === 'unix' ? [spec.socketFd] : [spec.portFd, spec.lifeFd];
  for (const fd of fds) Socket.adopt(fd).close();
}

/** Adopts the descriptors, also when it throws. */
export function openHostTransport(spec: HostTransportSpec): HostTransport {
  switch (spec.kind) {
    case 'unix':
      return UnixHost.open(spec);
    case 'qemu':
      return QemuHost.open(spec);
  }
}
