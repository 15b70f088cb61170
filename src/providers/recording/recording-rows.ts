// Work requests and completions between the rows of a batch and the objects of a recording.

import { createHash } from 'node:crypto';
import {
  type CompletionBatch,
  type ReceiveBatch,
  read64,
  receiveRow,
  type SendBatch,
  sendFlags,
  sendOpcodes,
  sendRow,
  sgeRow,
  write64,
} from '../../verbs/index.ts';
import type { RecordedBytes, RecordedCompletion, RecordedReceive, RecordedSend } from './recording-format.ts';
import type { RecordedRegions } from './recording-regions.ts';

type Sge = [address: number, length: number, lkey: number];

const opcodeNames = new Map(Object.entries(sendOpcodes).map(([name, value]) => [value as number, name]));
const sends: readonly number[] = [
  sendOpcodes.send,
  sendOpcodes.sendWithImm,
  sendOpcodes.write,
  sendOpcodes.writeWithImm,
];
const imms: readonly number[] = [sendOpcodes.sendWithImm, sendOpcodes.writeWithImm];

export function recordedSends(batch: SendBatch, regions: RecordedRegions, maxDataBytes: number): RecordedSend[] {
  return Array.from({ length: batch.count }, (_, index) => {
    const { words } = batch;
    const row = index * batch.rowWords;
    const opcode = words[row + sendRow.opcode];
    const flags = words[row + sendRow.flags];
    const sges = sgesAt(words, row + sendRow.sge, words[row + sendRow.sgeCount], batch.maxSge);
    const to = [sendRow.addressHandle, sendRow.destQpNumber, sendRow.qkey].map((at) => words[row + at]);
    const remote: [number, number] = [read64(words, row + sendRow.remoteAddress), words[row + sendRow.rkey]];
    const isRemote = !sends.includes(opcode) || opcode === sendOpcodes.write || opcode === sendOpcodes.writeWithImm;
    const isAtomic = opcode === sendOpcodes.fetchAdd || opcode === sendOpcodes.compareSwap;
    const request: RecordedSend = {
      opcode: (opcodeNames.get(opcode) ?? opcode) as RecordedSend['opcode'],
      flags,
      wrId: read64(words, row + sendRow.wrId),
      sges,
    };
    if (imms.includes(opcode)) request.imm = words[row + sendRow.imm];
    if (isRemote) request.remote = remote;
    if (isAtomic)
      request.atomic = Array.from(words.subarray(row + sendRow.compareAdd, row + sendRow.swap + 2)) as never;
    if (to[0] !== 0) request.to = to as [number, number, number];
    if (sends.includes(opcode)) {
      const isInline = (flags & sendFlags.inline) !== 0;
      request.data = sges.map(([address, length, lkey]) =>
        recordedBytes(regions.local(lkey, address, length, isInline), maxDataBytes),
      );
    } else if (opcode === sendOpcodes.read) {
      const length = sges.reduce((sum, [, each]) => sum + each, 0);
      const fetched = regions.remote(remote[1], remote[0], length);
      if (fetched !== undefined) request.remoteData = recordedBytes(fetched, maxDataBytes);
    }
    return request;
  });
}

export function recordedReceives(batch: ReceiveBatch): RecordedReceive[] {
  return Array.from({ length: batch.count }, (_, index) => {
    const row = index * batch.rowWords;
    const wrId = read64(batch.words, row + receiveRow.wrId);
    return {
      wrId,
      sges: sgesAt(batch.words, row + receiveRow.sge, batch.words[row + receiveRow.sgeCount], batch.maxSge),
    };
  });
}

export function recordedCompletions(batch: CompletionBatch, count: number): RecordedCompletion[] {
  return Array.from({ length: count }, (_, index) => {
    const { qpNumber, ...completion } = batch.toCompletion(index);
    return { ...completion, qp: qpNumber };
  });
}

/** Puts a request into the batch as it was, whatever it was. */
export function addSend(batch: SendBatch, request: RecordedSend): void {
  const { words } = batch;
  const row = batch.count * batch.rowWords;
  batch.send(request.wrId, request.flags);
  const { opcode } = request;
  words[row + sendRow.opcode] = typeof opcode === 'number' ? opcode : sendOpcodes[opcode];
  words[row + sendRow.imm] = request.imm ?? 0;
  write64(words, row + sendRow.remoteAddress, request.remote?.[0] ?? 0);
  words[row + sendRow.rkey] = request.remote?.[1] ?? 0;
  words.set(request.atomic ?? [0, 0, 0, 0], row + sendRow.compareAdd);
  const [handle, qpNumber, qkey] = request.to ?? [0, 0, 0];
  words.set([qpNumber, qkey, handle], row + sendRow.destQpNumber);
  for (const [address, length, lkey] of request.sges) batch.sge(lkey, address, length);
}

export function addReceive(batch: ReceiveBatch, request: RecordedReceive): void {
  batch.receive(request.wrId);
  for (const [address, length, lkey] of request.sges) batch.sge(lkey, address, length);
}

function sgesAt(words: Uint32Array, first: number, count: number, most: number): Sge[] {
  return Array.from({ length: Math.min(count, most) }, (_, index) => {
    const at = first + index * sgeRow.words;
    return [read64(words, at), words[at + sgeRow.length], words[at + sgeRow.lkey]];
  });
}

/** Empty where the request has no data. */
function recordedBytes(range: Uint8Array | undefined, maxDataBytes: number): RecordedBytes {
  if (range === undefined) return '';
  if (range.length <= maxDataBytes) return Buffer.from(range.buffer, range.byteOffset, range.length).toString('base64');
  return { sha256: createHash('sha256').update(range).digest('hex'), sizeBytes: range.length };
}
