// Datagrams in batches over one socket. They live in a slab of mapped memory, together with the
// addresses they go to or come from; rows say where.

import { addon } from './addon.ts';
import { SharedMemory } from './memory.ts';
import { AGAIN, check, checkAgain } from './result.ts';
import type { Socket } from './socket.ts';

/** As in native/datagram.c. */
export const MAX_DATAGRAMS = 64;
const ROW_WORDS = 8;
const sendWords = { offset: 0, length: 1, segmentBytes: 2, addressOffset: 3, addressBytes: 4 } as const;
const receiveWords = {
  offset: 0,
  room: 1,
  addressOffset: 2,
  addressRoom: 3,
  length: 4,
  segmentBytes: 5,
  addressBytes: 6,
  flags: 7,
} as const;
const MSG_TRUNC = 0x20;

/** Datagrams to be sent, in order. Nothing is allocated. */
export class SendList implements Disposable {
  readonly #slab: SharedMemory;
  readonly #memory: SharedMemory;
  readonly #rows: Uint32Array;
  readonly #capacity: number;
  #count = 0;
  #sent = 0;

  constructor(slab: SharedMemory, capacity: number) {
    this.#slab = slab;
    this.#capacity = capacity;
    this.#memory = SharedMemory.create({ sizeBytes: capacity * ROW_WORDS * 4, name: 'datagrams' });
    this.#rows = new Uint32Array(this.#memory.buffer);
  }

  get isEmpty(): boolean {
    return this.#count === this.#sent;
  }

  get isFull(): boolean {
    return this.#count === this.#capacity;
  }

  /**
   * `segmentBytes`: the kernel cuts it into datagrams of this size, the last one shorter; 0 sends
   * it as it is.
   */
  add(offset: number, length: number, segmentBytes: number, addressOffset: number, addressBytes: number): void {
    const rows = this.#rows;
    const row = this.#count++ * ROW_WORDS;
    rows[row + sendWords.offset] = offset;
    rows[row + sendWords.length] = length;
    rows[row + sendWords.segmentBytes] = segmentBytes;
    rows[row + sendWords.addressOffset] = addressOffset;
    rows[row + sendWords.addressBytes] = addressBytes;
  }

  /**
   * Sends as many as the socket takes; false when some are left. Throws for the first one left;
   * `skip` gives that up.
   */
  send(socket: Socket): boolean {
    while (this.#sent < this.#count) {
      const count = Math.min(MAX_DATAGRAMS, this.#count - this.#sent);
      const sent = checkAgain(
        addon.sendDatagrams(socket.fd, this.#slab.id, this.#memory.id, this.#sent, count),
        'sendmmsg',
      );
      if (sent === AGAIN) return false;
      this.#sent += sent;
    }
    this.#count = 0;
    this.#sent = 0;
    return true;
  }

  skip(): void {
    if (this.#sent < this.#count) this.#sent++;
  }

  close(): void {
    this.#memory.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/** Places for datagrams to come, in a slab: each with room for an address. */
export class ReceiveList implements Disposable {
  readonly #slab: SharedMemory;
  readonly #memory: SharedMemory;
  readonly #rows: Uint32Array;
  readonly #places: number;

  /**
   * Places of `placeBytes` each from `offset` on, then as many addresses of `addressRoom` bytes.
   */
  constructor(slab: SharedMemory, offset: number, places: number, placeBytes: number, addressRoom: number) {
    this.#slab = slab;
    this.#places = places;
    this.#memory = SharedMemory.create({ sizeBytes: places * ROW_WORDS * 4, name: 'datagrams' });
    this.#rows = new Uint32Array(this.#memory.buffer);
    for (let place = 0; place < places; place++) {
      const row = place * ROW_WORDS;
      this.#rows[row + receiveWords.offset] = offset + place * placeBytes;
      this.#rows[row + receiveWords.room] = placeBytes;
      this.#rows[row + receiveWords.addressOffset] = offset + places * placeBytes + place * addressRoom;
      this.#rows[row + receiveWords.addressRoom] = addressRoom;
    }
  }

  get places(): number {
    return this.#places;
  }

  /**
   * How many datagrams have come, at most one a place. Asking for fewer is quicker where none are
   * likely.
   */
  receive(socket: Socket, places = this.#places): number {
    const count = checkAgain(
      addon.receiveDatagrams(socket.fd, this.#slab.id, this.#memory.id, 0, Math.min(places, this.#places)),
      'recvmmsg',
    );
    return count === AGAIN ? 0 : count;
  }

  offset(index: number): number {
    return this.#rows[index * ROW_WORDS + receiveWords.offset];
  }

  length(index: number): number {
    return this.#rows[index * ROW_WORDS + receiveWords.length];
  }

  /** When the kernel has put several into one: the size of each but the last. 0: it is one. */
  segmentBytes(index: number): number {
    return this.#rows[index * ROW_WORDS + receiveWords.segmentBytes];
  }

  addressOffset(index: number): number {
    return this.#rows[index * ROW_WORDS + receiveWords.addressOffset];
  }

  isCut(index: number): boolean {
    return (this.#rows[index * ROW_WORDS + receiveWords.flags] & MSG_TRUNC) !== 0;
  }

  close(): void {
    this.#memory.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/** Of a network interface, in bytes of IP packets. */
export function interfaceMtu(socket: Socket, name: string): number {
  return check(addon.interfaceMtu(socket.fd, name), 'ioctl', `the MTU of ${name}`);
}
