// Destination addresses of packets, as sockaddrs in the memory that packets are sent from. Each is
// kept once, with a count of its users.

import { MillraceError, UsageError } from '../../../errors.ts';
import { encodeAddress, type Family, ip } from '../../../native/index.ts';
import { type Gid, gidBytes } from '../../../verbs/index.ts';
import { ROCE_PORT } from './packet.ts';

/** Room for one: sizeof(struct sockaddr_in6), rounded up. */
export const ADDRESS_ROOM = 32;

export interface Destination {
  /** Where in the memory its sockaddr is. */
  readonly offset: number;
  readonly bytes: number;
  readonly gid: Gid;
  /** The words of its IP address, as they stand in memory: one or four. */
  readonly words: Uint32Array;
}

interface Entry {
  readonly destination: Destination;
  uses: number;
}

export class AddressBook {
  readonly #bytes: Uint8Array;
  readonly #entries = new Map<Gid, Entry>();
  readonly #free: number[] = [];

  readonly #family: Family;

  /** Only addresses of one family, because a socket has one. */
  constructor(family: Family, buffer: ArrayBuffer, offset: number, capacity: number) {
    this.#family = family;
    this.#bytes = new Uint8Array(buffer);
    for (let index = capacity - 1; index >= 0; index--) this.#free.push(offset + index * ADDRESS_ROOM);
  }

  /** Every `take` needs a `release`. */
  take(gid: Gid): Destination {
    const known = this.#entries.get(gid);
    if (known !== undefined) {
      known.uses++;
      return known.destination;
    }
    const name = ip(addressOf(gid), ROCE_PORT);
    if (name.family !== this.#family) {
      throw new UsageError(`a path to ${gid}: this device speaks ${this.#family === 'ipv4' ? 'IPv4' : 'IPv6'} only`);
    }
    const address = encodeAddress(name);
    const offset = this.#free.pop();
    if (offset === undefined) {
      throw new MillraceError('MILLRACE_ERR_FAILED', `reach ${gid}: this device knows too many other hosts already`);
    }
    this.#bytes.fill(0, offset, offset + ADDRESS_ROOM);
    this.#bytes.set(address, offset);
    const destination = { offset, bytes: address.length, gid, words: addressWords(address) };
    this.#entries.set(gid, { destination, uses: 1 });
    return destination;
  }

  release({ gid, offset }: Destination): void {
    const entry = this.#entries.get(gid);
    if (entry === undefined || --entry.uses > 0) return;
    this.#entries.delete(gid);
    this.#free.push(offset);
  }
}

/** The IP address that a GID stands for. */
function addressOf(gid: Gid): string {
  const bytes = gidBytes(gid);
  const isMapped = bytes.subarray(0, 10).every((byte) => byte === 0) && bytes[10] === 0xff && bytes[11] === 0xff;
  return isMapped ? bytes.subarray(12).join('.') : gid;
}

/** struct sockaddr_in has its address at 4, sockaddr_in6 at 8. */
function addressWords(sockaddr: Uint8Array): Uint32Array {
  const copy = sockaddr.length === 16 ? sockaddr.slice(4, 8) : sockaddr.slice(8, 24);
  return new Uint32Array(copy.buffer);
}
