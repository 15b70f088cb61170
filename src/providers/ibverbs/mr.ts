// Memory regions of the device: pages pinned for it, and the keys to them.

import { UsageError } from '../../errors.ts';
import { ibverbs } from '../../native/index.ts';
import type { MrSpec, ProviderMr, ProviderQp } from '../../verbs/index.ts';
import { mebibytes, registerHint, verbsError } from './errors.ts';
import { Handle } from './handle.ts';

interface Registration {
  readonly handle: Handle;
  readonly lkey: number;
  readonly rkey: number;
  readonly address: number;
}

/**
 * The pages are pinned until the region is closed, whatever becomes of their mapping: memory that
 * is closed under its region is still written by peers, without effect.
 */
export class IbvMr implements ProviderMr {
  readonly lkey: number;
  readonly rkey: number;
  readonly address: number;
  readonly #pd: Handle;
  readonly #spec: MrSpec;
  readonly #handle: Handle;
  readonly #grants = new Map<number, Handle>();

  constructor(pd: Handle, spec: MrSpec) {
    const { handle, lkey, rkey, address } = register(pd, spec, spec.access);
    this.#pd = pd;
    this.#spec = spec;
    this.#handle = handle;
    this.lkey = lkey;
    this.rkey = rkey;
    this.address = address;
  }

  /**
   * A second registration with an rkey of its own. Devices can bind a key to one QP only through
   * memory windows, and those only once the QP is in RTS, which is too late for telling the peer;
   * so the key is this peer's secret and can be revoked alone, but the device would accept it from
   * other peers of the protection domain, too.
   */
  grant(_qp: ProviderQp, access: number): number {
    if (this.#spec.memory.isClosed) throw new UsageError('grant access to a region: its memory is closed');
    const { handle, rkey } = register(this.#pd, this.#spec, access);
    this.#grants.set(rkey, handle);
    return rkey;
  }

  revoke(rkey: number): void {
    const handle = this.#grants.get(rkey);
    if (handle === undefined) throw new UsageError('revoke an rkey: it is not of this region');
    handle.close();
    this.#grants.delete(rkey);
  }

  close(): void {
    for (const rkey of this.#grants.keys()) this.revoke(rkey);
    this.#handle.close();
  }
}

function register(pd: Handle, { memory, offset, sizeBytes }: MrSpec, access: number): Registration {
  const made = ibverbs.ibvRegister(pd.value, memory.id, offset, sizeBytes, access);
  if (typeof made === 'number') {
    throw verbsError(made, 'ibv_reg_mr', `register ${mebibytes(sizeBytes)}`, registerHint(made));
  }
  return { handle: new Handle(made[0], 'mr'), lkey: made[1], rkey: made[2], address: made[3] };
}
