// Completion queues of the device.

import { ibverbs } from '../../native/index.ts';
import type { CompletionBatch, CqSpec, ProviderCq } from '../../verbs/index.ts';
import type { IbvChannel } from './channel.ts';
import { checkVerbs } from './errors.ts';
import { Handle } from './handle.ts';

export class IbvCq implements ProviderCq {
  readonly handle: Handle;
  readonly #number: number;
  readonly #channel: IbvChannel | undefined;

  constructor(context: Handle, spec: CqSpec) {
    const { entries } = spec;
    this.#channel = spec.channel as IbvChannel | undefined;
    const made = ibverbs.ibvCreateCq(context.value, entries, this.#channel?.handle.value ?? 0);
    this.handle = new Handle(
      checkVerbs(made, 'ibv_create_cq', () => `make a CQ of ${entries} entries`),
      'cq',
    );
    this.#number = this.handle.value;
    this.#channel?.add(this);
  }

  poll(batch: CompletionBatch): number {
    const count = ibverbs.ibvPoll(this.#number, batch.memory.id, batch.capacity);
    return count < 0 ? checkVerbs(count, 'ibv_poll_cq', () => 'poll a CQ') : count;
  }

  arm(solicitedOnly: boolean): void {
    checkVerbs(ibverbs.ibvArm(this.#number, solicitedOnly ? 1 : 0), 'ibv_req_notify_cq', () => 'arm a CQ');
  }

  close(): void {
    this.handle.close();
    this.#channel?.remove(this);
  }
}
