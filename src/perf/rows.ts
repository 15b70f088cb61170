// Prefilled batches: a perf loop posts the same rows again and again. The id of a signalled row is
// the number of its batch's rows.

import { type Qp, ReceiveBatch, SendBatch, sendFlags } from '../providers/index.ts';
import { type PerfSetup, receiveDepth } from './setup.ts';

/**
 * `count` requests of the test for queue pair `index`; only the last one is signalled, if
 * `isSignaled`.
 */
export function requestRows(setup: PerfSetup, index: number, count: number, isSignaled = true): SendBatch {
  const batch = new SendBatch({ capacity: count, maxSge: 1 });
  const { sizeBytes, test } = setup.parameters;
  const { address, rkey } = setup.peers[index].regions.target;
  const inline = sizeBytes <= setup.qps[index].maxInlineBytes && isInlinable(test) ? sendFlags.inline : 0;
  for (let row = 1; row <= count; row++) {
    const flags = inline | (row === count && isSignaled ? sendFlags.signaled : 0);
    if (test.startsWith('write')) batch.write(count, address, rkey, flags);
    else if (test.startsWith('read')) batch.read(count, address, rkey, flags);
    else if (test.startsWith('send')) batch.send(count, flags);
    else batch.fetchAdd(count, address, rkey, 1, 0, flags);
    batch.sge(setup.source.lkey, setup.source.address, sizeBytes);
  }
  return batch;
}

function isInlinable(test: string): boolean {
  return test === 'write-lat' || test === 'send-lat';
}

/** Posts receives again, many at a time, as they are used up. */
export class ReceiveRefill implements Disposable {
  readonly #qp: Qp;
  readonly #batch = new ReceiveBatch({ capacity: receiveDepth / 4, maxSge: 1 });
  #used = 0;

  constructor({ parameters, target }: PerfSetup, qp: Qp) {
    this.#qp = qp;
    while (this.#batch.count < this.#batch.capacity) {
      this.#batch.receive(0).sge(target.lkey, target.address, parameters.sizeBytes);
    }
  }

  useOne(): void {
    if (++this.#used < this.#batch.capacity) return;
    this.#used = 0;
    this.#qp.postReceive(this.#batch);
  }

  [Symbol.dispose](): void {
    this.#batch.close();
  }
}
