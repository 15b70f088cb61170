// A worker at one end of a stream: does what it is told, says what came of it, and waits for the
// next order.

import { closeSync, openSync, readSync, writeSync } from 'node:fs';
import { parentPort } from 'node:worker_threads';
import { type LocalHandle, openLocalConsumer, openLocalProducer } from '../../../src/vortex/index.ts';
import { Random } from '../../../workbench/worlds/random.ts';
import { expectedByte } from './pattern.ts';

export type EndOrder = { readonly handle: LocalHandle; readonly sizeBytes: number } & (
  | { readonly kind: 'fill' | 'check'; readonly seed: number; readonly isEager: boolean }
  | { readonly kind: 'from-file' | 'to-file'; readonly path: string; readonly pieceBytes: number }
  | { readonly kind: 'touch'; readonly strideBytes: number }
  | { readonly kind: 'exit' }
);

export interface EndAnswer {
  readonly error?: string;
  readonly wrongAt?: number;
}

/** Keeps the thread busy for a while, or not at all: the other end has to wait, or this one. */
function dawdle(random: Random, isEager: boolean): void {
  if (isEager || random.next() < 0.7) return;
  const untilMs = performance.now() + random.next() * 2;
  while (performance.now() < untilMs);
}

/** Writes nonsense first and the right bytes as late as the revisit limit allows. */
function fill(bytes: Uint8Array, blockBytes: number, revisit: number, seed: number, isEager: boolean): void {
  const random = new Random(seed);
  const blocks = Math.ceil(bytes.length / blockBytes);
  for (let top = 0; top < blocks + revisit; top++) {
    const begin = top * blockBytes;
    if (top < blocks) bytes.fill(0xee, begin, Math.min(bytes.length, begin + blockBytes));
    dawdle(random, isEager);
    const last = (top - revisit) * blockBytes;
    if (last < 0) continue;
    for (let at = last; at < Math.min(bytes.length, last + blockBytes); at++) bytes[at] = expectedByte(at, seed);
  }
}

/**
 * The first wrong byte, reading forward and now and then as far back as is allowed; -1 when all are
 * right.
 */
function check(bytes: Uint8Array, blockBytes: number, revisit: number, seed: number, isEager: boolean): number {
  const random = new Random(seed + 1);
  for (let begin = 0; begin < bytes.length; begin += blockBytes) {
    const end = Math.min(bytes.length, begin + blockBytes);
    for (let at = begin; at < end; at++) if (bytes[at] !== expectedByte(at, seed)) return at;
    const at =
      begin - Math.floor(random.next() * (revisit + 1)) * blockBytes + Math.floor(random.next() * (end - begin));
    if (at >= 0 && bytes[at] !== expectedByte(at, seed)) return at;
    dawdle(random, isEager);
  }
  return -1;
}

async function produce(order: EndOrder): Promise<EndAnswer> {
  await using producer = openLocalProducer(order.handle);
  const { bytes } = producer;
  const part = bytes.subarray(0, order.sizeBytes);
  const { blockBytes = 0, revisitBlocks = 1 } = order.handle.options;
  if (order.kind === 'fill') fill(part, blockBytes, revisitBlocks, order.seed, order.isEager);
  if (order.kind === 'touch') for (let at = 0; at < part.length; at += order.strideBytes) part[at] = 1;
  if (order.kind === 'from-file')
    copyFile(order.path, 'r', part.length, order.pieceBytes, (fd, from, size) => readSync(fd, part, from, size, null));
  if (order.kind === 'exit') process.exit();
  producer.finish(order.sizeBytes);
  await producer.done();
  return {};
}

async function consume(order: EndOrder): Promise<EndAnswer> {
  await using consumer = openLocalConsumer(order.handle);
  const part = consumer.bytes.subarray(0, order.sizeBytes);
  const { blockBytes = 0, revisitBlocks = 1 } = order.handle.options;
  let wrongAt = -1;
  if (order.kind === 'check') wrongAt = check(part, blockBytes, revisitBlocks, order.seed, order.isEager);
  if (order.kind === 'touch') {
    for (let at = 0; wrongAt < 0 && at < part.length; at += order.strideBytes) if (part[at] !== 1) wrongAt = at;
  }
  if (order.kind === 'to-file')
    copyFile(order.path, 'w', part.length, order.pieceBytes, (fd, from, size) => writeSync(fd, part, from, size));
  await consumer.done();
  return { wrongAt };
}

function copyFile(
  path: string,
  flags: string,
  sizeBytes: number,
  pieceBytes: number,
  copy: (fd: number, from: number, size: number) => number,
): void {
  const fd = openSync(path, flags);
  let done = 0;
  while (done < sizeBytes) done += copy(fd, done, Math.min(pieceBytes, sizeBytes - done));
  closeSync(fd);
}

parentPort?.on('message', (order: EndOrder) => {
  const run = order.handle.role === 'producer' ? produce(order) : consume(order);
  run.then(
    (answer) => parentPort?.postMessage(answer),
    (error) => parentPort?.postMessage({ error: String(error.code ?? error) }),
  );
});
