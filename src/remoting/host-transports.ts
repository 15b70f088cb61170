// Host halves by what the monitor hands to a guest's thread: plain data, of which the thread makes the live thing.

import { QemuHost, type QemuHostSpec } from './qemu-host.ts';
import type { HostTransport } from './transport.ts';
import { UnixHost, type UnixHostSpec } from './unix-host.ts';

/** A new transport adds its spec here. */
export type HostTransportSpec = UnixHostSpec | QemuHostSpec;

export function openHostTransport(spec: HostTransportSpec): HostTransport {
  switch (spec.kind) {
    case 'unix':
      return UnixHost.open(spec);
    case 'qemu':
      return QemuHost.open(spec);
  }
}
