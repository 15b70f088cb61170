// Host halves by what the monitor hands to a guest's thread: plain data, of which the thread makes the live thing.

import { Socket } from '../../native/index.ts';
import type { HostTransport } from '../protocol/index.ts';
import { QemuHost, type QemuHostSpec } from './qemu-host.ts';
import { UnixHost, type UnixHostSpec } from './unix-host.ts';

/** A new transport adds its spec here. */
export type HostTransportSpec = UnixHostSpec | QemuHostSpec;

/** Closes what a spec names that no thread has adopted: the guest sees that nobody serves it. */
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
