// Memory regions of a remote device, and where their bytes are in this process.

import type { SharedMemory } from '../../native/index.ts';
import type { MrSpec, ProviderMr, ProviderQp } from '../../verbs/index.ts';
import type { RemoteDevice } from './device.ts';
import type { RemotePd } from './pd.ts';
import type { RemoteQp } from './qp.ts';

interface MrKeys {
  readonly handle: number;
  readonly lkey: number;
  readonly rkey: number;
  readonly address: number;
}

export class RemoteMr implements ProviderMr {
  readonly lkey: number;
  readonly rkey: number;
  readonly address: number;
  readonly pd: RemotePd;
  readonly memory: SharedMemory;
  readonly #offset: number;
  readonly #sizeBytes: number;
  readonly #device: RemoteDevice;
  readonly #handle: number;

  constructor(device: RemoteDevice, pd: RemotePd, spec: MrSpec, keys: MrKeys) {
    this.#device = device;
    this.pd = pd;
    this.memory = spec.memory;
    this.#offset = spec.offset;
    this.#sizeBytes = spec.sizeBytes;
    this.#handle = keys.handle;
    this.lkey = keys.lkey;
    this.rkey = keys.rkey;
    this.address = keys.address;
  }

  /** Where `address` is in `memory`, or -1 when the range is not inside the region. */
  locate(address: number, length: number): number {
    const at = address - this.address;
    const isInside = at >= 0 && at + length <= this.#sizeBytes && !this.memory.isClosed;
    return isInside ? this.#offset + at : -1;
  }

  grant(qp: ProviderQp, access: number): number {
    const { handle } = qp as RemoteQp;
    return this.#device.backend.call('grant', (writer) => writer.u32(this.#handle).u32(handle).u32(access)).u32();
  }

  revoke(rkey: number): void {
    this.#device.backend.call('revoke', (writer) => writer.u32(this.#handle).u32(rkey));
  }

  close(): void {
    this.#device.regions.remove(this);
    this.#device.backend.callIfAlive('closeMr', (writer) => writer.u32(this.#handle));
  }
}
