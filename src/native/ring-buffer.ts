// The consuming end of a BPF ring buffer: what programs in the kernel tell, record by record.
//
// Its layout is the kernel's: a page with the consumer's position, a page with the producer's, then
// the data, which is mapped twice in a row so that no record is ever in two pieces. Positions only
// grow; the ring's size is a power of two.

import { addon } from './addon.ts';
import { loadAcquire } from './atomics.ts';
import { Fd } from './fd.ts';
import { check, checkValue } from './result.ts';

const PAGE = 4096;
const PROT_READ = 1;
const PROT_WRITE = 2;
const HEADER_BYTES = 8;
const BUSY = 0x8000_0000;
const DISCARDED = 0x4000_0000;

export class RingBuffer implements Disposable {
  readonly #file: Fd;
  readonly #consumer: { readonly id: number; readonly buffer: ArrayBuffer };
  readonly #producer: { readonly id: number; readonly buffer: ArrayBuffer };
  readonly #position: Int32Array;
  readonly #end: Int32Array;
  readonly #words: Int32Array;
  readonly #bytes: Uint8Array;
  readonly #mask: number;
  #at: number;

  /** Of a ring buffer map of so many bytes. The map's descriptor is duplicated. */
  constructor(mapFd: number, sizeBytes: number) {
    using undo = new DisposableStack();
    this.#file = undo.use(new Fd(check(addon.dup(mapFd), 'dup')));
    this.#consumer = undo.adopt(mapped(this.#file.fd, 0, PAGE, PROT_READ | PROT_WRITE), unmap);
    this.#producer = undo.adopt(mapped(this.#file.fd, PAGE, PAGE + 2 * sizeBytes, PROT_READ), unmap);
    this.#position = new Int32Array(this.#consumer.buffer, 0, 2);
    this.#end = new Int32Array(this.#producer.buffer, 0, 2);
    this.#words = new Int32Array(this.#producer.buffer, PAGE);
    this.#bytes = new Uint8Array(this.#producer.buffer, PAGE);
    this.#mask = sizeBytes - 1;
    // Partner: `#advance` of an earlier consumer of the same map.
    this.#at = loadAcquire(this.#position, 0) >>> 0;
    undo.move();
  }

  /** Readable when there are records. */
  get fd(): number {
    return this.#file.fd;
  }

  /**
   * Calls `take` with each record there is; its bytes are good during the call. Returns how many
   * there were.
   */
  consume(take: (bytes: Uint8Array, offset: number, length: number) => void): number {
    let count = 0;
    // Partner: the kernel's release of the producer's position, after it has written the header.
    while (this.#at !== loadAcquire(this.#end, 0) >>> 0) {
      const start = this.#at & this.#mask;
      // Partner: the kernel's exchange of the header when a record is submitted: then the record is
      // complete.
      const header = loadAcquire(this.#words, start >>> 2) >>> 0;
      if ((header & BUSY) !== 0) break;
      const length = header & ~(BUSY | DISCARDED);
      if ((header & DISCARDED) === 0) {
        take(this.#bytes, start + HEADER_BYTES, length);
        count++;
      }
      this.#advance((HEADER_BYTES + length + 7) & ~7);
    }
    return count;
  }

  /**
   * One atomic addition, because the position has 64 bits: the kernel must never see half of one.
   * Partner: the kernel's acquire of it, before it reuses the space.
   */
  #advance(bytes: number): void {
    this.#at = (this.#at + bytes) >>> 0;
    addon.fetchAdd64(this.#consumer.id, 0, bytes, 0);
  }

  close(): void {
    if (this.#file.isClosed) return;
    unmap(this.#consumer);
    unmap(this.#producer);
    this.#file.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

function mapped(
  fd: number,
  offset: number,
  sizeBytes: number,
  protection: number,
): { readonly id: number; readonly buffer: ArrayBuffer } {
  const [id, buffer] = checkValue(addon.map(fd, offset, sizeBytes, protection, 0, sizeBytes), 'mmap', 'a ring buffer');
  return { id, buffer };
}

function unmap({ id, buffer }: { readonly id: number; readonly buffer: ArrayBuffer }): void {
  addon.unmap(id, buffer);
}
