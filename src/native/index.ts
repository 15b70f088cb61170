// Kernel facilities for TypeScript: shared memory, descriptors, sockets, threads, BPF, page faults.

export { type Address, decodeAddress, encodeAddress, type Family, formatAddress, ip, ipv4Text } from './address.ts';
export { compareExchange, exchange, fetchAdd, fetchOr, loadAcquire, storeRelease } from './atomics.ts';
export { compareSwap64, fetchAdd64, high64, low64 } from './atomics64.ts';
export { measureCrossing } from './bench.ts';
export { type BpfAttachment, BpfIterator, BpfLink, type BpfLoadOptions, BpfObject } from './bpf.ts';
export { BpfError } from './bpf-error.ts';
export { BpfMap, type BpfMapSpec, pinBpf } from './bpf-map.ts';
export { CopyList } from './copies.ts';
export { interfaceMtu, MAX_DATAGRAMS, ReceiveList, SendList } from './datagrams.ts';
export { becomeProgram, endProcess } from './exec.ts';
export { EventFd, Fd, PidFd, TimerFd } from './fd.ts';
export { type FutexResult, futexWait, futexWake } from './futex.ts';
export { IdleCollector, laneHeap, limitHeapGrowth } from './heap.ts';
export {
  gidEntry,
  type IbvDeviceAttributes,
  type IbvKind,
  type IbvPortAttributes,
  ibverbs,
  ibvKinds,
  lastRefusal,
  pathWords,
  stepWords,
} from './ibverbs.ts';
export { type KvmTrial, tryKvmGuest } from './kvm.ts';
export { type LibraryLookUp, lookUpLibrary } from './library.ts';
export { listeningSockets } from './listening.ts';
export {
  type CreateMemoryOptions,
  copyMemory,
  HUGE_PAGE_BYTES,
  type OpenMemoryOptions,
  SharedMemory,
} from './memory.ts';
export { MemoryFile } from './memory-file.ts';
export { type LinkNumber, readLink, writeLink } from './netlink.ts';
export { inNetns, isOwnedHere, netnsCookie } from './netns.ts';
export { MAX_PACKETS, NOT_WHOLE, PacketCheck, PacketSeal } from './packets.ts';
export { failAllPagers, failPagersOf, Pager, type PagerCounters, type PagerOptions } from './pager.ts';
export { Poller, pollEvents } from './poller.ts';
export {
  type CapabilityName,
  capabilityNamesOf,
  forbidDumps,
  limitPrivileges,
  threadPrivileges,
} from './privileges.ts';
export { MAX_RANGES, RangeList } from './ranges.ts';
export { AGAIN, check, checkValue } from './result.ts';
export { RingBuffer } from './ring-buffer.ts';
export { Socket, type SocketOption } from './socket.ts';
export { monotonicNs, nameThread, pinThread, threadAffinity, threadId, yieldProcessor } from './thread.ts';
export { createBestUserfault, UserfaultFd, type UserfaultFeature, type UserfaultOptions } from './userfault.ts';
export { FdWatch } from './watch.ts';
