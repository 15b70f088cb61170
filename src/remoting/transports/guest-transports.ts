// Opens the guest half of a transport, by where the backend is.

import type { GuestTransport } from '../protocol/index.ts';
import { QemuGuest } from './qemu/guest-transport.ts';
import { UnixGuest } from './unix/guest-transport.ts';

/**
 * `qemu` is the backend on the host of this virtual machine; anything else is the path of a
 * backend's socket. Blocks until the backend has answered.
 */
export function openGuestTransport(backend: string): GuestTransport {
  return backend === 'qemu' ? QemuGuest.connect() : UnixGuest.connect(backend);
}
