// Prefilled batches: a perf loop posts the same rows again and again. The id of a signalled row says how many it stands for.

import { type Qp, ReceiveBatch, SendBatch, sendFlags } from '../providers/index.ts';
import { receiveDepth, type Session } from './session.ts';

/** `count` requests of the session's test for queue pair `index`; only the last is signalled, if at all. */
export function requestRows(session: Session, index: number, count: number, isSignaled = true): SendBatch {
  const batch = new SendBatch({ capacity: count, maxSge: 1 });
  const { sizeBytes, test } = session.parameters;
  const { address, rkey } = session.peers[index].regions.target;
  const inline = sizeBytes <= session.qps[index].maxInlineBytes && isInlinable(test) ? sendFlags.inline : 0;
  for (let row = 1; row <= count; row++) {
    const flags = inline | (row === count && isSignaled ? sendFlags.signaled : 0);
    if (test.startsWith('write')) batch.write(count, address, rkey, flags);
    else if (test.startsWith('read')) batch.read(count, address, rkey, flags);
    else if (test.startsWith('send')) batch.send(count, flags);
    else batch.fetchAdd(count, address, rkey, 1, 0, flags);
    batch.sge(session.source.lkey, session.source.address, sizeBytes);
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

  constructor({ parameters, target }: Session, qp: Qp) {
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
