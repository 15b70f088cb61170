// Work in another network namespace: sockets that are made there stay there.

import { constants, fstatSync, statSync } from 'node:fs';
import { addon } from './addon.ts';
import { Fd } from './fd.ts';
import { check } from './result.ts';
import { Socket } from './socket.ts';

/**
 * Whether a namespace was made by somebody with the rights of this process's user namespace. Any
 * user can make one that is owned by a user namespace of its own, and give it any addresses.
 */
export function isOwnedHere(namespace: Fd): boolean {
  using owner = new Fd(check(addon.ownerNamespace(namespace.fd), 'ioctl', 'the owner of a namespace'));
  return fstatSync(owner.fd).ino === statSync('/proc/self/ns/user').ino;
}

/**
 * Runs `work` with the calling thread in the network namespace that the descriptor stands for. It
 * must not wait for anything: other work of this thread would run there, too.
 */
export function inNetns<T>(namespace: Fd, work: () => T): T {
  using own = Fd.open('/proc/thread-self/ns/net', constants.O_RDONLY);
  check(addon.enterNetns(namespace.fd), 'setns', 'network namespace');
  try {
    return work();
  } finally {
    // A thread that cannot come back must not go on: all its sockets would be in the wrong place.
    if (addon.enterNetns(own.fd) < 0) process.abort();
  }
}

/** The cookie of the network namespace that the calling thread is in. */
export function netnsCookie(): number {
  using socket = Socket.stream('ipv4');
  return socket.netnsCookie;
}
