// Guest halves by where the backend is.

import type { GuestTransport } from '../protocol/index.ts';
import { QemuGuest } from './qemu-guest.ts';
import { UnixGuest } from './unix-guest.ts';

/** `qemu` is the backend below this virtual machine; all else is the path of a backend's socket. Blocks until it has answered. */
export function openGuestTransport(backend: string): GuestTransport {
  return backend === 'qemu' ? QemuGuest.connect() : UnixGuest.connect(backend);
}
