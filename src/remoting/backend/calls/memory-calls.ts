// Calls about protection domains, memory, regions, keys and address handles.

import { fstatSync } from 'node:fs';
import { UnsupportedError, UsageError } from '../../../errors.ts';
import type { HostMemory, WordWriter } from '../../protocol/index.ts';
import { readPath, readRange, writeRange } from '../../protocol/index.ts';
import type { MemoryObject, PdObject } from '../guest/guest-objects.ts';
import type { GuestState } from '../guest/guest-state.ts';
import type { CallHandler } from './call-handler.ts';
import { refuseWithChildren } from './device-calls.ts';

/** The largest page size of memory that is not in huge pages, on any processor. */
const MAX_PAGE_BYTES = 65_536;

export const createPd: CallHandler = (guest, args, results) => {
  const owner = guest.objects.get('device', args.u32());
  using undo = new DisposableStack();
  guest.quota.takeWith(undo, 'pds');
  const pd = undo.use(owner.device.createPd());
  const entry: PdObject = { pd, owner, lkeys: new Set(), addressHandles: new Set(), children: 0 };
  results.u32(guest.objects.add('pd', entry));
  owner.children++;
  undo.move();
};

export const closePd: CallHandler = (guest, args) => {
  const handle = args.u32();
  const entry = guest.objects.get('pd', handle);
  refuseWithChildren('protection domain', entry.children);
  guest.objects.remove(handle);
  entry.pd.close();
  entry.owner.children--;
  guest.quota.give('pds');
};

/**
 * Allocates memory that guest and backend share. It is freed with the last region on it, or by
 * `free` if there never was one.
 */
export const allocate: CallHandler = (guest, args, results) => {
  const sizeBytes = args.u64();
  const hugePages = args.flag();
  if (hugePages && !guest.options.hugePages) {
    throw new UnsupportedError(`allocate ${sizeBytes} bytes of huge pages: the backend gives none to its guests`);
  }
  using undo = new DisposableStack();
  guest.quota.takeWith(undo, 'memories');
  guest.quota.takeWith(undo, 'memoryBytes', sizeBytes);
  const memory = undo.use(guest.transport.allocate(sizeBytes, { hugePages }));
  addMemory(guest, memory, results);
  undo.move();
};

export const adopt: CallHandler = (guest, args, results) => {
  const range = readRange(args);
  using undo = new DisposableStack();
  // Adopted before anything is checked: a descriptor that the guest has passed must not stay in the
  // socket.
  const memory = undo.use(guest.transport.adopt(range));
  if (!guest.options.hugePages && fstatSync(memory.memory.fd).blksize > MAX_PAGE_BYTES) {
    throw new UnsupportedError('register memory in huge pages: the backend takes none from its guests');
  }
  guest.quota.takeWith(undo, 'memories');
  guest.quota.takeWith(undo, 'memoryBytes', memory.sizeBytes);
  addMemory(guest, memory, results);
  undo.move();
};

function addMemory(guest: GuestState, memory: HostMemory, results: WordWriter): void {
  const entry: MemoryObject = { memory, regions: 0, handle: () => handle };
  const handle = guest.objects.add('memory', entry);
  results.u32(handle);
  writeRange(results, memory);
}

export const free: CallHandler = (guest, args) => {
  const entry = guest.objects.get('memory', args.u32());
  refuseWithChildren('memory', entry.regions);
  freeMemory(guest, entry);
};

function freeMemory(guest: GuestState, entry: MemoryObject): void {
  guest.objects.remove(entry.handle());
  guest.quota.give('memories');
  guest.quota.give('memoryBytes', entry.memory.sizeBytes);
  entry.memory.close();
}

export const registerMr: CallHandler = (guest, args, results) => {
  const owner = guest.objects.get('pd', args.u32());
  const memory = guest.objects.get('memory', args.u32());
  const offset = args.u64();
  const sizeBytes = args.u64();
  const access = args.u32();
  using undo = new DisposableStack();
  guest.quota.takeWith(undo, 'regions');
  // The range is checked against the guest's memory, which may be a part of a larger area of the
  // host.
  if (offset + sizeBytes > memory.memory.sizeBytes) {
    throw new UsageError(`register ${sizeBytes} bytes at ${offset}: the memory has ${memory.memory.sizeBytes}`);
  }
  const place = { offset: memory.memory.offset + offset, sizeBytes, access };
  const mr = undo.use(owner.pd.register(memory.memory.memory, place));
  results
    .u32(guest.objects.add('mr', { mr, grants: new Set(), owner, memory }))
    .u32(mr.lkey)
    .u32(mr.rkey)
    .u64(mr.address);
  owner.lkeys.add(mr.lkey);
  owner.children++;
  memory.regions++;
  undo.move();
};

export const closeMr: CallHandler = (guest, args) => {
  const handle = args.u32();
  const { mr, grants, owner, memory } = guest.objects.get('mr', handle);
  guest.objects.remove(handle);
  owner.lkeys.delete(mr.lkey);
  owner.children--;
  mr.close();
  guest.quota.give('regions');
  guest.quota.give('grants', grants.size);
  if (--memory.regions === 0) freeMemory(guest, memory);
};

export const grant: CallHandler = (guest, args, results) => {
  const { mr, grants } = guest.objects.get('mr', args.u32());
  const { qp } = guest.objects.get('qp', args.u32());
  using undo = new DisposableStack();
  guest.quota.takeWith(undo, 'grants');
  const rkey = mr.grant(qp, args.u32());
  grants.add(rkey);
  results.u32(rkey);
  undo.move();
};

export const revoke: CallHandler = (guest, args) => {
  const { mr, grants } = guest.objects.get('mr', args.u32());
  const rkey = args.u32();
  mr.revoke(rkey);
  if (grants.delete(rkey)) guest.quota.give('grants');
};

export const createAh: CallHandler = (guest, args, results) => {
  const owner = guest.objects.get('pd', args.u32());
  using undo = new DisposableStack();
  guest.quota.takeWith(undo, 'addressHandles');
  const ah = undo.use(owner.pd.createAh(readPath(args)));
  results.u32(guest.objects.add('ah', { ah, owner })).u32(ah.handle);
  owner.addressHandles.add(ah.handle);
  owner.children++;
  undo.move();
};

export const closeAh: CallHandler = (guest, args) => {
  const handle = args.u32();
  const { ah, owner } = guest.objects.get('ah', handle);
  guest.objects.remove(handle);
  owner.addressHandles.delete(ah.handle);
  owner.children--;
  ah.close();
  guest.quota.give('addressHandles');
};
