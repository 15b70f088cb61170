// Shared receive queues of a remote device.

import type { ProviderSrq, ReceiveBatch } from '../../verbs/index.ts';
import type { RemoteDevice } from './device.ts';
import { postReceives } from './receives.ts';
import type { RequestRing } from './request-ring.ts';

export class RemoteSrq implements ProviderSrq {
  readonly handle: number;
  readonly #device: RemoteDevice;
  readonly #ring: RequestRing;

  constructor(device: RemoteDevice, handle: number, ring: RequestRing) {
    this.#device = device;
    this.handle = handle;
    this.#ring = ring;
  }

  post(batch: ReceiveBatch): number {
    return postReceives(this.#ring, batch);
  }

  setLimit(limit: number): void {
    this.#device.backend.call('setSrqLimit', (writer) => writer.u32(this.handle).u32(limit));
  }

  close(): void {
    this.#device.removeSrq(this);
    this.#device.backend.callIfAlive('closeSrq', (writer) => writer.u32(this.handle));
    this.#ring.memory.close();
  }
}
