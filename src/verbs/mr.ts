// A memory region: bytes that the device may touch, and the keys to them.

import { UsageError } from '../errors.ts';
import type { SharedMemory } from '../native/index.ts';
import { accessProblem } from './access.ts';
import type { RemoteRegion } from './endpoint/index.ts';
import { VerbsObject } from './object.ts';
import type { Pd } from './pd.ts';
import type { MrSpec, ProviderMr } from './provider.ts';
import type { Qp } from './qp.ts';

export class Mr extends VerbsObject {
  readonly pd: Pd;
  readonly memory: SharedMemory;
  /** Of the region in `memory`. */
  readonly offset: number;
  readonly sizeBytes: number;
  readonly access: number;
  readonly #mr: ProviderMr;
  readonly #isOwner: boolean;

  constructor(pd: Pd, mr: ProviderMr, spec: MrSpec, isOwner: boolean) {
    super([pd]);
    this.pd = pd;
    this.memory = spec.memory;
    this.offset = spec.offset;
    this.sizeBytes = spec.sizeBytes;
    this.access = spec.access;
    this.#mr = mr;
    this.#isOwner = isOwner;
  }

  get lkey(): number {
    return this.#mr.lkey;
  }

  /** Good for the peers of every QP of the protection domain. `grant` makes narrower ones. */
  get rkey(): number {
    return this.#mr.rkey;
  }

  /** The first byte's address in work requests. */
  get address(): number {
    return this.#mr.address;
  }

  /** The region's bytes; empty once closed, if the region owns its memory. */
  get bytes(): Uint8Array {
    if (this.memory.isClosed) return new Uint8Array(0);
    return new Uint8Array(this.memory.buffer, this.offset, this.sizeBytes);
  }

  /** What the peer must know: `rkey` as in `grant`, or the region's own. */
  remote(rkey: number = this.rkey): RemoteRegion {
    return { address: this.address, rkey, sizeBytes: this.sizeBytes };
  }

  /**
   * An rkey for the peer of one QP alone. It opens at most what the region allows, until revoked or
   * closed.
   */
  grant(qp: Qp, flags: number = this.access): number {
    this.checkOpen();
    const problem =
      accessProblem(flags) ?? ((flags & ~this.access) === 0 ? undefined : 'the region itself allows less');
    if (problem !== undefined) throw new UsageError(`grant access to a region: ${problem}`);
    if (qp.pd !== this.pd) throw new UsageError('grant access to a region: the QP is of another protection domain');
    return this.#mr.grant(qp.provided, flags);
  }

  /** From now on the key opens nothing. Other keys of the region stay as they are. */
  revoke(rkey: number): void {
    this.checkOpen();
    this.#mr.revoke(rkey);
  }

  protected override release(): void {
    this.#mr.close();
    if (this.#isOwner) this.memory.close();
  }
}
