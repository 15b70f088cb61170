// Identifiers that mean the same on every node: who made the object, and a number that this node
// never uses twice.

import { MillraceError, UsageError } from '../errors.ts';

/** With 32 bits for the counter an id stays below 2^52, so it is a plain number everywhere. */
const COUNTERS = 2 ** 32;
export const MAX_NODE_ID = 2 ** 20 - 1;
export const MAX_ID = MAX_NODE_ID * COUNTERS + COUNTERS - 1;

export function checkNodeId(nodeId: number): void {
  if (Number.isInteger(nodeId) && nodeId >= 1 && nodeId <= MAX_NODE_ID) return;
  throw new UsageError(`a node with the id ${nodeId}: expected 1 to ${MAX_NODE_ID}`);
}

/** The node that made the buffer or the transfer of this id. */
export function nodeIdOf(id: number): number {
  return Math.floor(id / COUNTERS);
}

/** Gives out the ids of one node. */
export class IdSource {
  readonly #first: number;
  #used = 0;

  constructor(nodeId: number) {
    this.#first = nodeId * COUNTERS;
  }

  next(): number {
    if (this.#used === COUNTERS - 1) throw new MillraceError('MILLRACE_ERR_FAILED', 'this node has used up its ids');
    this.#used++;
    return this.#first + this.#used;
  }
}
