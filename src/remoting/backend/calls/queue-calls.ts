// Calls about completion queues, shared receive queues and queue pairs.

import { completionStatuses } from '../../../verbs/index.ts';
import type { HostMemory } from '../../protocol/index.ts';
import {
  completionRingShape,
  type QpSizes,
  qpShape,
  readQpAttributes,
  receiveRingShape,
  stateOf,
  stateWord,
  typeOf,
  writeRange,
} from '../../protocol/index.ts';
import type { CqObject, PdObject, QpObject, SrqObject } from '../guest/guest-objects.ts';
import type { GuestState } from '../guest/guest-state.ts';
import { GuestCompletionQueue } from '../queues/guest-completion-queue.ts';
import { GuestReceiveQueue } from '../queues/guest-receive-queue.ts';
import { GuestSendQueue, type GuestSendQueueOptions } from '../queues/guest-send-queue.ts';
import type { CallHandler } from './call-handler.ts';
import { refuseWithChildren } from './device-calls.ts';

/** Entries of the device's CQ for completions that are kept from the guest: see GuestSendQueue. */
const SPARE_ENTRIES = 16;

export const createCq: CallHandler = (guest, args, results) => {
  const owner = guest.objects.get('device', args.u32());
  const entries = args.u32();
  const { attributes } = owner.device;
  using undo = new DisposableStack();
  guest.quota.takeWith(undo, 'cqs');
  const nativeEntries = Math.max(entries, Math.min(entries + SPARE_ENTRIES, attributes.maxCqEntries));
  // Twice the ring, because the device's CQ has as many entries.
  const memoryBytes = 2 * completionRingShape(Math.max(1, entries)).sizeBytes;
  guest.quota.takeWith(undo, 'memoryBytes', memoryBytes);
  const cq = undo.use(owner.device.createCq({ entries: nativeEntries, channel: owner.channel }));
  const shape = completionRingShape(entries);
  const memory = undo.use(guest.transport.allocate(shape.sizeBytes));
  const queue = new GuestCompletionQueue({
    cq,
    memory,
    shape,
    tags: guest.tags,
    counts: guest.options.counts,
    marksSolicited: attributes.marksSolicited ?? false,
    onEvent: guest.options.onCompletions,
    onNap: guest.options.onNap,
  });
  const entry: CqObject = { cq, queue, owner, memoryBytes, children: 0 };
  const handle = guest.objects.add('cq', entry);
  results.u32(handle);
  writeRange(results, memory);
  guest.handles.set(cq, handle);
  guest.completionQueues.push(queue);
  owner.children++;
  undo.move();
};

export const closeCq: CallHandler = (guest, args) => {
  const handle = args.u32();
  const entry = guest.objects.get('cq', handle);
  refuseWithChildren('completion queue', entry.children);
  guest.objects.remove(handle);
  guest.handles.delete(entry.cq);
  guest.completionQueues.splice(guest.completionQueues.indexOf(entry.queue), 1);
  entry.cq.close();
  entry.queue.close();
  entry.owner.children--;
  guest.quota.give('cqs');
  guest.quota.give('memoryBytes', entry.memoryBytes);
};

export const createSrq: CallHandler = (guest, args, results) => {
  const owner = guest.objects.get('pd', args.u32());
  const requests = args.u32();
  const maxSge = args.u32();
  using undo = new DisposableStack();
  guest.quota.takeWith(undo, 'srqs');
  guest.quota.takeWith(undo, 'operations', requests);
  const srq = undo.use(owner.pd.createSrq({ requests, maxSge }));
  const shape = receiveRingShape(requests, maxSge);
  const memory = allocateRing(guest, undo, shape.words * 4);
  const queue = addQueue(guest, undo, (tag) => {
    const batch = guest.receiveBatch(maxSge);
    return new GuestReceiveQueue({ tag, target: srq, words: wordsOf(memory), shape, keys: owner, batch });
  });
  const entry: SrqObject = { srq, queue, memory, owner, operations: requests, children: 0 };
  const handle = guest.objects.add('srq', entry);
  results.u32(handle);
  writeRange(results, memory);
  guest.handles.set(srq, handle);
  owner.children++;
  undo.move();
};

export const closeSrq: CallHandler = (guest, args) => {
  const handle = args.u32();
  const entry = guest.objects.get('srq', handle);
  refuseWithChildren('shared receive queue', entry.children);
  guest.objects.remove(handle);
  guest.handles.delete(entry.srq);
  drainAll(guest);
  entry.srq.close();
  guest.removeQueue(entry.queue);
  freeRing(guest, entry.memory);
  entry.owner.children--;
  guest.quota.give('srqs');
  guest.quota.give('operations', entry.operations);
};

export const setSrqLimit: CallHandler = (guest, args) => {
  guest.objects.get('srq', args.u32()).srq.setLimit(args.u32());
};

export const createQp: CallHandler = (guest, args, results) => {
  const owner = guest.objects.get('pd', args.u32());
  const type = typeOf(args.u32());
  const sendCq = guest.objects.get('cq', args.u32());
  const receiveCq = guest.objects.get('cq', args.u32());
  const srqHandle = args.u32();
  const srq = srqHandle === 0 ? undefined : guest.objects.get('srq', srqHandle);
  const [sendRequests, receiveRequests, maxSge, maxInlineBytes] = [args.u32(), args.u32(), args.u32(), args.u32()];
  const signalAll = args.flag();
  const operations = sendRequests + (srq === undefined ? receiveRequests : 0);
  using undo = new DisposableStack();
  guest.quota.takeWith(undo, 'qps');
  guest.quota.takeWith(undo, 'operations', operations);
  const sizes = { sendRequests, receiveRequests, maxSge, maxInlineBytes };
  const queues = { sendCq: sendCq.cq, receiveCq: receiveCq.cq, ...(srq && { srq: srq.srq }) };
  // Checks the sizes, before memory is allocated by them.
  const qp = undo.use(owner.pd.createQp({ type, ...queues, ...sizes, signalAll }));
  const onRefused = (error: unknown, wrIds: readonly number[]): void =>
    giveUp(guest, qp, owner, sendCq, wrIds, error instanceof Error ? error.message : String(error));
  const made = makeQueues(guest, undo, qp, owner, srq, sizes, { signalAll, onRefused });
  const entry: QpObject = { qp, ...made, srq, owner, sendCq, receiveCq, operations };
  results.u32(guest.objects.add('qp', entry)).u32(qp.number);
  writeRange(results, made.memory);
  for (const parent of parentsOf(entry)) parent.children++;
  undo.move();
};

type MadeQueues = Pick<QpObject, 'send' | 'receive' | 'inline' | 'memory'>;

function makeQueues(
  guest: GuestState,
  undo: DisposableStack,
  qp: QpObject['qp'],
  owner: PdObject,
  srq: SrqObject | undefined,
  sizes: QpSizes,
  sending: Pick<GuestSendQueueOptions, 'signalAll' | 'onRefused'>,
): MadeQueues {
  const { maxSge, maxInlineBytes } = sizes;
  const shape = qpShape({ ...sizes, receiveRequests: srq === undefined ? sizes.receiveRequests : 0 });
  const memory = allocateRing(guest, undo, shape.sizeBytes);
  const words = wordsOf(memory);
  const inlinePlace = {
    offset: memory.offset + shape.inlineAt,
    sizeBytes: shape.sizeBytes - shape.inlineAt,
    access: 0,
  };
  const inline = maxInlineBytes === 0 ? undefined : undo.use(owner.pd.register(memory.memory, inlinePlace));
  const { inlineStride } = shape;
  const send = addQueue(guest, undo, (tag) => {
    const batch = guest.sendBatch(maxSge);
    const limits = { qpType: qp.type, maxSge, keys: owner, inline, inlineStride, maxInlineBytes };
    return new GuestSendQueue({ tag, qp, words, shape: shape.send, limits, batch, ...sending });
  });
  const receiveShape = shape.receive;
  if (receiveShape === undefined) return { send, receive: undefined, inline, memory };
  const target = { post: qp.postReceive.bind(qp) };
  const receive = addQueue(guest, undo, (tag) => {
    return new GuestReceiveQueue({
      tag,
      target,
      words,
      shape: receiveShape,
      keys: owner,
      batch: guest.receiveBatch(maxSge),
    });
  });
  return { send, receive, inline, memory };
}

/**
 * A request that the device refuses when it is posted brings its QP to ERR, as one that fails later
 * does.
 */
function giveUp(
  guest: GuestState,
  qp: QpObject['qp'],
  owner: PdObject,
  { queue }: CqObject,
  wrIds: readonly number[],
  reason: string,
): void {
  // Completions that are there come first.
  queue.drain();
  for (let index = 0; index < wrIds.length; index += 2) {
    queue.inject(wrIds[index], wrIds[index + 1], completionStatuses.WR_FLUSH_ERR, qp.number);
  }
  if (qp.state !== 'RESET') qp.modify('ERR');
  guest.addQpFatal(owner.owner.handle(), qp.number, reason);
}

export const closeQp: CallHandler = (guest, args) => {
  const handle = args.u32();
  const entry = guest.objects.get('qp', handle);
  guest.objects.remove(handle);
  drainOf(entry);
  entry.qp.close();
  entry.inline?.close();
  guest.removeQueue(entry.send);
  if (entry.receive !== undefined) guest.removeQueue(entry.receive);
  freeRing(guest, entry.memory);
  for (const parent of parentsOf(entry)) parent.children--;
  guest.quota.give('qps');
  guest.quota.give('operations', entry.operations);
};

export const modifyQp: CallHandler = (guest, args) => {
  const entry = guest.objects.get('qp', args.u32());
  const to = stateOf(args.u32());
  const attributes = readQpAttributes(args);
  if (to === 'RESET') drainOf(entry);
  entry.qp.modify(to, attributes);
  if (to !== 'RESET') return;
  entry.send.reset();
  entry.receive?.reset();
};

export const qpState: CallHandler = (guest, args, results) => {
  const { qp } = guest.objects.get('qp', args.u32());
  results.u32(stateWord(qp.state)).text(qp.peer, 200);
};

function parentsOf({ owner, sendCq, receiveCq, srq }: QpObject): readonly { children: number }[] {
  return [owner, sendCq, receiveCq, ...(srq === undefined ? [] : [srq])];
}

/**
 * Completions get the ids that their requests were posted with, before the places are used for
 * other requests.
 */
function drainOf({ sendCq, receiveCq }: QpObject): void {
  sendCq.queue.drain();
  receiveCq.queue.drain();
}

function drainAll(guest: GuestState): void {
  for (const queue of guest.completionQueues) queue.drain();
}

function addQueue<Q extends GuestSendQueue | GuestReceiveQueue>(
  guest: GuestState,
  undo: DisposableStack,
  make: (tag: number) => Q,
): Q {
  const queue = guest.tags.add(make);
  guest.addQueue(queue);
  undo.defer(() => guest.removeQueue(queue));
  return queue;
}

function allocateRing(guest: GuestState, undo: DisposableStack, sizeBytes: number): HostMemory {
  guest.quota.takeWith(undo, 'memoryBytes', sizeBytes);
  return undo.use(guest.transport.allocate(sizeBytes));
}

function freeRing(guest: GuestState, memory: HostMemory): void {
  guest.quota.give('memoryBytes', memory.sizeBytes);
  memory.close();
}

function wordsOf({ memory, offset, sizeBytes }: HostMemory): Uint32Array {
  return new Uint32Array(memory.buffer, offset, sizeBytes >>> 2);
}
