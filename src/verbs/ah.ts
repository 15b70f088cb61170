// An address handle: where datagrams go. UD requests name it with `SendBatch.to`.

import { VerbsObject } from './object.ts';
import type { Pd } from './pd.ts';
import type { ProviderAh } from './provider.ts';

/** A received datagram starts with this many bytes of global route header; its data follows. */
export const GRH_BYTES = 40;

export class Ah extends VerbsObject {
  readonly pd: Pd;
  readonly #ah: ProviderAh;

  constructor(pd: Pd, ah: ProviderAh) {
    super([pd]);
    this.pd = pd;
    this.#ah = ah;
  }

  /** What stands for it in rows of a batch. */
  get handle(): number {
    this.checkOpen();
    return this.#ah.handle;
  }

  protected override release(): void {
    this.#ah.close();
  }
}
