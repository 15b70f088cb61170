// A worker of the row vortex.local: fills or sums doubles, in the window of a stream or in an
// ordinary array.

import { parentPort } from 'node:worker_threads';
import {
  type Consumer,
  type LocalHandle,
  openLocalConsumer,
  openLocalProducer,
  type Producer,
} from '../../src/vortex/index.ts';

/**
 * `open`: opens a window for the next `stream`, which runs the loop over all of it. `array`: runs
 * the loop over an array of `arrayBytes`, `sizeBytes` in all.
 */
export type LoopOrder =
  | { readonly kind: 'open'; readonly handle: LocalHandle }
  | { readonly kind: 'stream' }
  | {
      readonly kind: 'array';
      readonly role: 'producer' | 'consumer';
      readonly arrayBytes: number;
      readonly sizeBytes: number;
    };

export interface LoopAnswer {
  /** The last element, or the sum, so that V8 does not optimize the loop away. */
  readonly value: number;
  readonly faults: number;
}

function fill(array: Float64Array): number {
  for (let index = 0; index < array.length; index++) array[index] = index;
  return array.length - 1;
}

function sum(array: Float64Array): number {
  let total = 0;
  for (let index = 0; index < array.length; index++) total += array[index];
  return total;
}

let array = new Float64Array(0);
let producer: Producer | undefined;
let consumer: Consumer | undefined;
let window = new Float64Array(0);

async function open(handle: LocalHandle): Promise<LoopAnswer> {
  await Promise.all([producer?.close(), consumer?.close()]);
  producer = handle.role === 'producer' ? openLocalProducer(handle) : undefined;
  consumer = handle.role === 'consumer' ? openLocalConsumer(handle) : undefined;
  window = (producer ?? consumer)?.array(Float64Array) ?? window;
  return { value: 0, faults: 0 };
}

async function runStream(): Promise<LoopAnswer> {
  const value = producer === undefined ? sum(window) : fill(window);
  producer?.finish();
  await (producer ?? consumer)?.done();
  return { value, faults: (producer ?? consumer)?.counters?.faults ?? 0 };
}

async function run(order: LoopOrder): Promise<LoopAnswer> {
  if (order.kind === 'open') return open(order.handle);
  if (order.kind === 'stream') return runStream();
  const { role, arrayBytes, sizeBytes } = order;
  if (array.byteLength !== arrayBytes) array = new Float64Array(arrayBytes / 8);
  const loop = role === 'producer' ? fill : sum;
  let value = 0;
  for (let done = 0; done < sizeBytes; done += arrayBytes) value += loop(array);
  return { value, faults: 0 };
}

parentPort?.on('message', (order: LoopOrder) => {
  void run(order).then((answer) => parentPort?.postMessage(answer));
});
