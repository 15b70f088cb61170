// What carries remoting between a guest and the backend: shared memory, a doorbell each way, and
// whether the other side is alive.
//
// There are two halves. The host half belongs to the backend's worker of that guest, the guest half
// to the frontend (providers/remote). Both see one call area (call-protocol.ts says what is in it);
// everything else that they share is allocated by the host half, described by a `SharedRange`, and
// mapped by the guest half. Ranges travel as words in the results of calls, so they are plain
// numbers.
//
// Doorbells. `ringDoorbell` wakes the other side if it sleeps on its `fd`; several may be merged
// into one, none may be lost. The doorbell is rung only when the other side has stored in shared
// memory that it sleeps, so a transport need not save system calls.

import type { SharedMemory } from '../../native/index.ts';

/** Which memory is meant, in a form that both halves understand. */
export interface SharedRange {
  /** 32 bits. unix: the number of a memfd that was passed. ivshmem: 0. */
  readonly id: number;
  /** Of the first byte in that memory, in bytes. unix: 0. ivshmem: a multiple of the page size. */
  readonly offset: number;
  readonly sizeBytes: number;
}

/**
 * Memory that a guest sees, as the host has it. The guest may change any byte at any time: copy,
 * then check.
 */
export interface HostMemory extends Disposable {
  /**
   * Where the bytes are. A transport whose ranges are parts of one area must give the area as a
   * whole, and `offset`: the soft device hands out the descriptor of a region that is the whole of
   * its memory to the region's peers.
   */
  readonly memory: SharedMemory;
  readonly offset: number;
  readonly sizeBytes: number;
  readonly range: SharedRange;
  /**
   * The guest may still have it mapped; a part of an area may be given to the same guest again from
   * now on.
   */
  close(): void;
}

export interface AllocateSharedOptions {
  /** 2 MiB pages, where the transport has them. */
  readonly hugePages?: boolean;
}

/** What both halves have. */
interface Transport extends Disposable {
  /**
   * For epoll: readable when the doorbell was rung since the last `takeDoorbell`, or the other side
   * is gone.
   */
  readonly fd: number;
  /** Clears the doorbell. False when the other side is gone, for good. Never blocks. */
  takeDoorbell(): boolean;
  /** Wakes the other side. Harmless when it is gone. */
  ringDoorbell(): void;
  /**
   * Ends the connection: the other side's `takeDoorbell` says so. Unmaps what this half made and
   * nobody closed.
   */
  close(): void;
}

export interface HostTransport extends Transport {
  /** For people: `pid 4711 of uid 1000`, `guest a of QEMU`. */
  readonly peer: string;
  /** `CALL_AREA_BYTES`, zeroed; the transport's until it is closed. */
  readonly callArea: HostMemory;
  /**
   * Memory full of zeros that the guest half can map from now on. Throws as memory allocations do
   * (ENOMEM).
   */
  allocate(sizeBytes: number, options?: AllocateSharedOptions): HostMemory;
  /**
   * Memory of the guest's own that its half has offered under this range. Throws UnsupportedError
   * where guests cannot offer any, and MILLRACE_ERR_UNSAFE_MEMORY for memory that could be taken
   * away while it is in use.
   */
  adopt(range: SharedRange): HostMemory;
}

export interface GuestTransport extends Transport {
  /** `CALL_AREA_BYTES`; the transport's until it is closed. */
  readonly callArea: SharedMemory;
  /** Maps what the host half has allocated. Whoever calls it closes the memory. */
  map(range: SharedRange): SharedMemory;
  /**
   * Makes memory of this program known to the host half, which then may `adopt` it. Throws
   * UnsupportedError where it cannot.
   */
  offer(memory: SharedMemory): SharedRange;
}
