// Protection domains of the device, and what is made in them.

import { ibverbs } from '../../native/index.ts';
import type { MrSpec, PathTo, ProviderAh, ProviderPd, QpSpec, SrqSpec } from '../../verbs/index.ts';
import { checkVerbs, stepHint, verbsError } from './errors.ts';
import { Handle } from './handle.ts';
import { IbvMr } from './mr.ts';
import { chooseSource } from './port.ts';
import { encodePath, IbvQp } from './qp.ts';
import { IbvSrq } from './srq.ts';

const AH_PORT = 1;

export class IbvPd implements ProviderPd {
  readonly #context: Handle;
  readonly #handle: Handle;
  readonly #track: (srq: IbvSrq) => void;

  /** `track`: events name SRQs by their handles. */
  constructor(context: Handle, track: (srq: IbvSrq) => void) {
    this.#context = context;
    this.#track = track;
    this.#handle = new Handle(
      checkVerbs(ibverbs.ibvAllocPd(context.value), 'ibv_alloc_pd', () => 'make a protection domain'),
      'pd',
    );
  }

  registerMr(spec: MrSpec): IbvMr {
    return new IbvMr(this.#handle, spec);
  }

  createSrq(spec: SrqSpec): IbvSrq {
    const srq = new IbvSrq(this.#handle, spec);
    this.#track(srq);
    return srq;
  }

  createQp(spec: QpSpec): IbvQp {
    return new IbvQp(this.#context, this.#handle, spec);
  }

  createAh(path: PathTo): ProviderAh {
    const source = chooseSource(this.#context, AH_PORT, path);
    const made = ibverbs.ibvCreateAh(this.#handle.value, encodePath(AH_PORT, path, source));
    if (made < 0) {
      const hint = stepHint(made, { gidIndex: source.gidIndex, peer: path.gid });
      throw verbsError(made, 'ibv_create_ah', `make an address handle to ${path.gid}`, hint);
    }
    const ah = new Handle(made, 'ah');
    return { handle: made, close: () => ah.close() };
  }

  close(): void {
    this.#handle.close();
  }
}
