// Completions of posted requests: pushed to the send CQ if the request is signalled or failed.

import { completionOpcodes, completionStatuses, sendFlags, sendOpcodes, sendRow } from '../../verbs/index.ts';
import type { SoftCq } from './completion-queue.ts';
import type { SendQueue } from './send-queue.ts';

/** Completion opcodes by the opcode of the request. */
const completionOpcodeOf = [
  completionOpcodes.send,
  completionOpcodes.send,
  completionOpcodes.write,
  completionOpcodes.write,
  completionOpcodes.read,
  completionOpcodes.fetchAdd,
  completionOpcodes.compareSwap,
];

export class SendCompletions {
  readonly #owner: { readonly number: number; fail(reason: string): void };
  readonly #cq: SoftCq;
  readonly #queue: SendQueue;
  readonly #signalAll: boolean;

  constructor(
    owner: { readonly number: number; fail(reason: string): void },
    cq: SoftCq,
    queue: SendQueue,
    signalAll: boolean,
  ) {
    this.#owner = owner;
    this.#cq = cq;
    this.#queue = queue;
    this.#signalAll = signalAll;
  }

  /** The oldest request leaves the queue. */
  doneFirst(status: number): void {
    const entry = this.#queue.entryAt(0);
    this.#queue.shift();
    // Its row stays readable until the next one is stored.
    this.done(this.#queue.words, this.#queue.rowOf(entry), status, this.#queue.bytesOf(entry));
  }

  /** Whether the request in this row of the queue gets a completion when it succeeds. */
  isSignaled(row: number): boolean {
    return this.#signalAll || (this.#queue.words[row + sendRow.flags] & sendFlags.signaled) !== 0;
  }

  /** `words` and `row` are the request's, `bytes` the length of its message. */
  done(words: Uint32Array, row: number, status: number, bytes: number): void {
    const isSignaled = this.#signalAll || (words[row + sendRow.flags] & sendFlags.signaled) !== 0;
    if (status === completionStatuses.SUCCESS && !isSignaled) return;
    const low = words[row + sendRow.wrId];
    const high = words[row + sendRow.wrId + 1];
    const opcode = words[row + sendRow.opcode];
    const brought = opcode >= sendOpcodes.read ? bytes : 0;
    const { number } = this.#owner;
    const isKept = this.#cq.push(low, high, status, completionOpcodeOf[opcode], brought, number, 0, false, false);
    if (!isKept) this.#owner.fail('its CQ is full');
  }
}
