// Loads the addon and declares what it exports. Only src/native/ imports this; other rooms use the
// wrappers.
//
// Calls return what the system call returned, or -errno; wrong types and ranges throw. `id` is the
// number of a mapping in this thread. Ranges are (id, offset, length).

import { createRequire } from 'node:module';
import { UnsupportedError } from '../errors.ts';
import type { IbverbsCalls } from './ibverbs.ts';

interface MemoryCalls {
  memfdCreate(name: string, sizeBytes: number, flags: number): number;
  memorySize(fd: number): number;
  seals(fd: number): number;
  addSeals(fd: number, seals: number): number;
  punchHole(fd: number, offset: number, length: number): number;
  trimMalloc(): number;
  map(
    fd: number,
    offset: number,
    sizeBytes: number,
    protection: number,
    flags: number,
    viewBytes: number,
  ): [id: number, buffer: ArrayBuffer] | number;
  adviseHuge(id: number, offset: number, length: number, isNow: 0 | 1): number;
  unmap(id: number, buffer: ArrayBuffer): void;
  forgetMapping(id: number): void;
  copy(toId: number, toOffset: number, fromId: number, fromOffset: number, length: number): void;
  copyRanges(rowsId: number, count: number): number;
  futexWait(id: number, offset: number, expected: number, timeoutNs: number): number;
  futexWake(id: number, offset: number, count: number): number;
}

interface FdCalls {
  close(fd: number): number;
  closeAside(fds: readonly number[]): number;
  closingAside(): number;
  adopt(fd: number): number;
  disown(fd: number): number;
  dup(fd: number): number;
  open(path: string, flags: number): number;
  eventfd(initial: number): number;
  eventWrite(fd: number, count: number): number;
  eventRead(fd: number): number;
  timerfdCreate(): number;
  timerfdSet(fd: number, firstNs: number, intervalNs: number): number;
  ownerNamespace(fd: number): number;
  pidfdOpen(pid: number): number;
  pidfdSignal(fd: number, signal: number): number;
  epollCreate(): number;
  epollCtl(epoll: number, operation: number, fd: number, events: number, token: number): number;
  epollWait(epoll: number, id: number, capacity: number, timeoutNs: number): number;
  readonly epollEventBytes: number;
  sendFds(socket: number, bytes: Uint8Array, fds: readonly number[]): number;
  recvFds(socket: number, bytes: Uint8Array): number[] | number;
}

interface SocketCalls {
  socket(domain: number, type: number): number;
  socketpair(domain: number, type: number): [number, number] | number;
  bind(fd: number, address: Uint8Array): number;
  connect(fd: number, address: Uint8Array): number;
  listen(fd: number, backlog: number): number;
  accept(fd: number): number;
  shutdown(fd: number, how: number): number;
  getsockname(fd: number, out: Uint8Array): number;
  getpeername(fd: number, out: Uint8Array): number;
  setsockopt(fd: number, level: number, option: number, value: Uint8Array): number;
  getsockopt(fd: number, level: number, option: number, out: Uint8Array): number;
  recv(fd: number, id: number, offset: number, length: number, flags: number): number;
  send(fd: number, id: number, offset: number, length: number, flags: number): number;
  recvFrom(fd: number, id: number, offset: number, length: number, address: Uint8Array): number;
  sendTo(fd: number, id: number, offset: number, length: number, address: Uint8Array): number;
  sendRanges(fd: number, listId: number, count: number): number;
  queued(fd: number, request: number): number;
}

interface DatagramCalls {
  sendDatagrams(fd: number, slabId: number, rowsId: number, first: number, count: number): number;
  receiveDatagrams(fd: number, slabId: number, rowsId: number, first: number, count: number): number;
  interfaceMtu(fd: number, name: string): number;
  sealPackets(
    slabId: number,
    localOffset: number,
    rowsId: number,
    first: number,
    count: number,
    piecesId: number,
    pieceCount: number,
  ): number;
  checkPackets(slabId: number, localOffset: number, rowsId: number, count: number): number;
}

interface NetlinkCalls {
  netlinkAsk(protocol: number, request: Uint8Array, answer: Uint8Array): number;
}

interface PrivilegeCalls {
  limitThread(thread: number, low: number, high: number, timeoutNs: number): number;
  forbidDumps(): number;
}

interface ExecCalls {
  /** Returns only when it failed: -errno. Strings lie one after the other, each with its NUL. */
  exec(
    words: Uint8Array,
    environmentChanges: Uint8Array,
    inheritedFds: readonly number[],
    stdioFlags: readonly number[],
    ignoredSignals: readonly number[],
    openFiles: number,
  ): number;
  endProcess(code: number): never;
}

interface ThreadCalls {
  pin(cpu: number): number;
  enterNetns(fd: number): number;
  affinity(): number[] | number;
  setName(name: string): number;
  threadId(): number;
  clock(): void;
  yieldProcessor(): void;
  nothing(): void;
  /** Where the clocks leave their results: a number that is returned would be allocated. */
  readonly scratch: Float64Array;
}

/** A watch on Node's event loop, opaque here. */
export interface WatchHandle {
  readonly isWatchHandle: never;
}

interface WatchCalls {
  watchStart(fd: number, onReadable: (status: number) => void): WatchHandle | number;
  watchStop(watch: WatchHandle): void;
  watchHold(watch: WatchHandle, isHeld: number): void;
}

/** 64-bit operations on eight aligned bytes. What was there is left in `scratch`, as bits. */
interface AtomicCalls {
  fetchAdd64(id: number, offset: number, addLow: number, addHigh: number): void;
  compareSwap64(
    id: number,
    offset: number,
    compareLow: number,
    compareHigh: number,
    swapLow: number,
    swapHigh: number,
  ): void;
}

/** A BPF object of libbpf, opaque here. */
export interface BpfHandle {
  readonly isBpfHandle: never;
}

/** A result of libbpf with its log: for a refused program, the verifier's log. */
type BpfAnswer = [result: number, log: string];

interface BpfCalls {
  bpfIsAvailable(): boolean;
  bpfOpen(bytes: Uint8Array, name: string): BpfHandle | BpfAnswer;
  bpfClose(object: BpfHandle): void;
  bpfPrograms(object: BpfHandle): string[];
  bpfMaps(object: BpfHandle): string[];
  bpfChooseProgram(object: BpfHandle, name: string, isWanted: boolean): number;
  bpfChooseMap(object: BpfHandle, name: string, isWanted: boolean): number;
  bpfLoad(object: BpfHandle): BpfAnswer;
  bpfProgramFd(object: BpfHandle, name: string): number;
  bpfMapFd(object: BpfHandle, name: string): number;
  bpfAttachType(object: BpfHandle, program: string): number;
  bpfLinkCreate(program: number, target: number, attachType: number): number;
  bpfLinkIterator(program: number, map: number): number;
  bpfProgAttach(program: number, target: number, attachType: number): number;
  bpfProgDetach(program: number, target: number, attachType: number): number;
  bpfProgRun(program: number, context: Uint8Array): number;
  /** These four refuse keys and values that are not of the map's size (EINVAL). */
  bpfMapLookup(map: number, key: Uint8Array, value: Uint8Array): number;
  bpfMapUpdate(map: number, key: Uint8Array, value: Uint8Array, flags: number): number;
  bpfMapDelete(map: number, key: Uint8Array): number;
  bpfMapNextKey(map: number, key: Uint8Array, next: Uint8Array, isFirst: number): number;
  bpfMapInfo(map: number): [type: number, keyBytes: number, valueBytes: number, entries: number, id: number] | number;
  bpfPin(fd: number, path: string): number;
  bpfGetPinned(path: string): number;
  bpfLinkUpdate(link: number, program: number): number;
  bpfIterCreate(link: number): number;
  bpfMapById(id: number): number;
  bpfMapCreate(
    name: string,
    type: number,
    keyBytes: number,
    valueBytes: number,
    entries: number,
    flags: number,
  ): number;
}

interface UserfaultCalls {
  userfaultCreate(flags: number): number;
  userfaultCreateByDevice(device: number, flags: number): number;
  userfaultHandshake(fd: number, features: number): number;
}

/** A pager with its thread, opaque here. */
export interface PagerHandle {
  readonly isPagerHandle: never;
}

interface PagerCalls {
  pagerStart(
    userfault: number,
    pool: number,
    ownEvent: number,
    otherEvent: number,
    doorbell: number,
    lifeline: number,
    ledger: number,
    windowBytes: number,
    blockBytes: number,
    poolBlocks: number,
    isProducer: number,
    revisitBlocks: number,
    readAheadBlocks: number,
    timeoutMs: number,
    doesClear: number,
    owners: Uint8Array,
  ): [handle: PagerHandle, buffer: ArrayBuffer] | number;
  pagerFinish(pager: PagerHandle, end: number): void;
  pagerStop(pager: PagerHandle, buffer: ArrayBuffer): void;
  pagerCounters(pager: PagerHandle): [faults: number, mapped: number, sinks: number, top: number, waits: number];
  pagersFail(thread: number, code: number): number;
}

interface MachineCalls {
  kvmTryGuest(device: number): [step: number, errno: number, exitReason: number] | number;
  libraryLookUp(name: string, symbol: string): [result: number, pathOrReason: string];
}

export interface Addon
  extends WatchCalls,
    AtomicCalls,
    MemoryCalls,
    FdCalls,
    SocketCalls,
    DatagramCalls,
    NetlinkCalls,
    PrivilegeCalls,
    ExecCalls,
    ThreadCalls,
    BpfCalls,
    IbverbsCalls,
    UserfaultCalls,
    PagerCalls,
    MachineCalls {}

function load(): Addon {
  // MILLRACE_ADDON lets the tests run the same code against the sanitizer build.
  const path = process.env.MILLRACE_ADDON ?? new URL('../../build/release/millrace.node', import.meta.url).pathname;
  try {
    return createRequire(import.meta.url)(path) as Addon;
  } catch (error) {
    throw new UnsupportedError(`the native addon did not load from ${path}; run: npm run setup`, { cause: error });
  }
}

export const addon = load();
