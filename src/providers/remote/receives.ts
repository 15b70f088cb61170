// Posting receives into a ring, for queue pairs and shared receive queues alike.

import { UsageError } from '../../errors.ts';
import { type ReceiveBatch, receiveRow, sgeRow } from '../../verbs/index.ts';
import type { RequestRing } from './request-ring.ts';

/** Takes as many rows as there is room for. A wrong row throws; those before it are taken. */
export function postReceives(ring: RequestRing, batch: ReceiveBatch): number {
  const count = Math.min(batch.count, ring.free(batch.count));
  const { words: from, rowWords } = batch;
  const { words: to, maxSge } = ring;
  for (let index = 0; index < count; index++) {
    const source = index * rowWords;
    const sges = from[source + receiveRow.sgeCount];
    if (sges > maxSge) {
      if (index > 0) ring.publish(index);
      throw new UsageError(`a receive with ${sges} scatter-gather entries: the queue takes ${maxSge}`);
    }
    const target = ring.row(ring.slot(index));
    const used = receiveRow.sge + sges * sgeRow.words;
    for (let word = 0; word < used; word++) to[target + word] = from[source + word];
  }
  if (count > 0) ring.publish(count);
  return count;
}
