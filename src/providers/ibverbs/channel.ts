// Completion channels: the kernel's descriptor, which is readable when an armed CQ had something.

import { AGAIN, ibverbs } from '../../native/index.ts';
import type { ProviderChannel } from '../../verbs/index.ts';
import type { IbvCq } from './cq.ts';
import { checkMade, verbsError } from './errors.ts';
import { Handle } from './handle.ts';

export class IbvChannel implements ProviderChannel {
  readonly fd: number;
  readonly handle: Handle;
  readonly #cqs = new Map<number, IbvCq>();

  constructor(context: Handle) {
    const made = checkMade(ibverbs.ibvCreateChannel(context.value), 'ibv_create_comp_channel', () => 'make a channel');
    this.handle = new Handle(made[0], 'channel');
    this.fd = made[1];
  }

  add(cq: IbvCq): void {
    this.#cqs.set(cq.handle.value, cq);
  }

  remove(cq: IbvCq): void {
    this.#cqs.delete(cq.handle.value);
  }

  take(): readonly IbvCq[] {
    const taken = new Set<IbvCq>();
    for (;;) {
      const result = ibverbs.ibvTakeCompletionEvent(this.handle.value);
      if (result === AGAIN) return [...taken];
      if (result < 0) throw verbsError(result, 'ibv_get_cq_event', 'take the events of a channel');
      const cq = this.#cqs.get(result);
      if (cq !== undefined) taken.add(cq);
    }
  }

  close(): void {
    this.handle.close();
  }
}
