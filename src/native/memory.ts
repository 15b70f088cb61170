// Shared memory: a memfd mapped as one ArrayBuffer, in as many threads and processes as hold its
// descriptor.

import { MillraceError, UsageError } from '../errors.ts';
import { addon } from './addon.ts';
import { Fd } from './fd.ts';
import { check, checkValue } from './result.ts';

// <linux/memfd.h>, <sys/mman.h>, <linux/fcntl.h>
const MFD_HUGETLB = 0x0004;
const MFD_HUGE_2MB = 21 << 26;
const PROT_READ = 1;
const PROT_WRITE = 2;
const MAP_POPULATE = 0x8000;
const F_SEAL_SHRINK = 0x0002;
export const HUGE_PAGE_BYTES = 2 * 1024 * 1024;

export interface CreateMemoryOptions {
  readonly sizeBytes: number;
  /** Seen in /proc/PID/maps. */
  readonly name?: string;
  /**
   * 2 MiB pages; `sizeBytes` must be a multiple. Throws ENOMEM when the system has none free.
   * `transparent`: asks for them, and is content with what comes (see
   * /sys/kernel/mm/transparent_hugepage/shmem_enabled).
   */
  readonly hugePages?: boolean | 'transparent';
  /** Touch every page now rather than on first use. */
  readonly populate?: boolean;
}

export interface OpenMemoryOptions {
  readonly offset?: number;
  /** Default: all of it. */
  readonly sizeBytes?: number;
  readonly populate?: boolean;
  /**
   * For a descriptor that was opened so. Writing to the memory, from JavaScript too, then ends the
   * process (SIGSEGV).
   */
  readonly readOnly?: boolean;
  /**
   * Map even what its other holders could shrink. A page that is taken away kills this process with
   * SIGBUS, so this is only for memory of parties that could kill it anyway.
   */
  readonly trusted?: boolean;
  /**
   * `buffer` shows so much, from the first byte; the rest is for `copyMemory` and the like. V8
   * counts what buffers show as memory of its own, and collects all garbage when that grows.
   * Default: all of it.
   */
  readonly viewBytes?: number;
}

// A mapping whose SharedMemory was collected without close(): free its number. Views that live on
// keep the pages.
const forgotten = new FinalizationRegistry<number>((id) => addon.forgetMapping(id));

/**
 * A mapping and the descriptor behind it.
 *
 * `buffer` is the whole of it, unless `viewBytes` says otherwise; make what views you like.
 * `close()` detaches the buffer, so that every view made from it has length 0 from then on, and
 * unmaps. Other threads and processes that mapped the same descriptor keep theirs.
 *
 * The buffer is an ordinary ArrayBuffer, because a SharedArrayBuffer cannot be detached. `Atomics`
 * work on it all the same (see atomics.ts).
 */
export class SharedMemory implements Disposable {
  readonly buffer: ArrayBuffer;
  readonly sizeBytes: number;
  /** The whole words of `buffer`, for `copyMemory`; of length 0 once closed. */
  readonly words: Int32Array;
  readonly #file: Fd;
  #id: number;

  static create(options: CreateMemoryOptions): SharedMemory {
    const { sizeBytes, name = 'millrace', hugePages = false, populate = false } = options;
    checkSize(sizeBytes);
    if (hugePages !== false && sizeBytes % HUGE_PAGE_BYTES !== 0) {
      throw new UsageError(`create ${sizeBytes} bytes of huge pages: the size must be a multiple of 2 MiB`);
    }
    const flags = hugePages === true ? MFD_HUGETLB | MFD_HUGE_2MB : 0;
    const what = `${sizeBytes} bytes${hugePages === true ? ' of huge pages; see /proc/sys/vm/nr_hugepages' : ''}`;
    using undo = new DisposableStack();
    const file = undo.use(new Fd(check(addon.memfdCreate(name, sizeBytes, flags), 'memfd_create', what)));
    const isAdvised = hugePages === 'transparent';
    const memory = undo.use(new SharedMemory(file, { sizeBytes, populate: populate && !isAdvised }));
    if (isAdvised) {
      addon.adviseHuge(memory.id, 0, sizeBytes, 0);
      // Only now: what was touched before keeps its small pages.
      if (populate) new Uint8Array(memory.buffer).fill(0);
    }
    undo.move();
    return memory;
  }

  /** Maps memory that came from elsewhere. Takes the descriptor over, also when it throws. */
  static open(file: Fd, options: OpenMemoryOptions = {}): SharedMemory {
    using undo = new DisposableStack();
    undo.use(file);
    const available = check(addon.memorySize(file.fd), 'fstat');
    const { offset = 0, sizeBytes = available - offset, viewBytes = sizeBytes, trusted = false } = options;
    checkSize(sizeBytes);
    if (!Number.isSafeInteger(viewBytes) || viewBytes < 0 || viewBytes > sizeBytes) {
      throw new UsageError(`show ${viewBytes} bytes of a mapping: it has ${sizeBytes}`);
    }
    // Checked first, so that what is measured cannot get smaller afterwards.
    const seals = addon.seals(file.fd);
    if (!trusted && (seals < 0 || (seals & F_SEAL_SHRINK) === 0)) {
      throw new MillraceError(
        'MILLRACE_ERR_UNSAFE_MEMORY',
        'map memory of another party: it is not sealed against shrinking (F_SEAL_SHRINK), so it could be taken away',
      );
    }
    if (!Number.isSafeInteger(offset) || offset < 0 || offset + sizeBytes > available) {
      throw new UsageError(`map ${sizeBytes} bytes at ${offset}: the memory has ${available}`);
    }
    const memory = new SharedMemory(file, { ...options, sizeBytes });
    undo.move();
    return memory;
  }

  private constructor(file: Fd, options: OpenMemoryOptions & { readonly sizeBytes: number }) {
    const { offset = 0, sizeBytes, viewBytes = sizeBytes, populate = false, readOnly = false } = options;
    const protection = readOnly ? PROT_READ : PROT_READ | PROT_WRITE;
    const mapped = addon.map(file.fd, offset, sizeBytes, protection, populate ? MAP_POPULATE : 0, viewBytes);
    [this.#id, this.buffer] = checkValue(mapped, 'mmap', `${sizeBytes} bytes`);
    this.sizeBytes = sizeBytes;
    this.words = new Int32Array(this.buffer, 0, viewBytes >>> 2);
    this.#file = file;
    forgotten.register(this, this.#id, this);
  }

  /** The mapping's number, which calls of the addon take; -1, which they refuse, when closed. */
  get id(): number {
    return this.#id;
  }

  /**
   * Moves what is there into huge pages, for all who have mapped it, whatever shmem_enabled says
   * (not `deny`). Takes about a millisecond for each. Only whole ones within the range. False where
   * some could not be: nothing is lost by it.
   */
  useHugePages(offset: number, sizeBytes: number): boolean {
    const start = Math.ceil(offset / HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES;
    const end = Math.floor((offset + sizeBytes) / HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES;
    return end > start && addon.adviseHuge(this.#id, start, end - start, 1) === 0;
  }

  /**
   * Gives the pages of a range back to the system, for all who have mapped it: it reads as zero.
   */
  discard(offset: number, sizeBytes: number): void {
    check(addon.punchHole(this.fd, offset, sizeBytes), 'fallocate', `discard ${sizeBytes} bytes at ${offset}`);
  }

  /** The descriptor, for passing on: who maps it sees the same bytes. */
  get fd(): number {
    return this.#file.fd;
  }

  /** A descriptor of the same memory that outlives this object. */
  duplicateFd(): Fd {
    return this.#file.duplicate();
  }

  get isClosed(): boolean {
    return this.#id < 0;
  }

  close(): void {
    if (this.#id < 0) return;
    const id = this.#id;
    this.#id = -1;
    forgotten.unregister(this);
    addon.unmap(id, this.buffer);
    this.#file.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/**
 * Up to here a loop is faster than the way into C and back: 64 bytes take 28 to 39 ns instead of
 * 66, 128 about the same, 256 longer.
 */
const SMALL_COPY_BYTES = 128;

/** Copies between mappings, or within one; the ranges may overlap. Allocates nothing. */
export function copyMemory(
  to: SharedMemory,
  toOffset: number,
  from: SharedMemory,
  fromOffset: number,
  sizeBytes: number,
): void {
  const isSmall = sizeBytes <= SMALL_COPY_BYTES && ((toOffset | fromOffset | sizeBytes) & 3) === 0 && to !== from;
  if (isSmall && copyWords(to.words, toOffset, from.words, fromOffset, sizeBytes)) return;
  addon.copy(to.id, toOffset, from.id, fromOffset, sizeBytes);
}

/** False when a range is not inside its memory: the addon says what is wrong. */
function copyWords(to: Int32Array, toOffset: number, from: Int32Array, fromOffset: number, sizeBytes: number): boolean {
  const toStart = toOffset / 4;
  const fromStart = fromOffset / 4;
  const count = sizeBytes / 4;
  const isInside =
    toStart >= 0 && fromStart >= 0 && count >= 0 && toStart + count <= to.length && fromStart + count <= from.length;
  if (!isInside) return false;
  for (let word = 0; word < count; word++) to[toStart + word] = from[fromStart + word];
  return true;
}

function checkSize(sizeBytes: number): void {
  if (Number.isSafeInteger(sizeBytes) && sizeBytes > 0) return;
  throw new UsageError(`memory of ${sizeBytes} bytes: the size must be a positive whole number`);
}
