// Completion channels of driven devices (soft, remote): an epoll descriptor over the channel's own
// event and the device's descriptors.

import { EventFd, Poller, pollEvents } from '../native/index.ts';
import type { ProviderChannel, ProviderCq } from './provider.ts';

export class DrivenChannel implements ProviderChannel {
  readonly #event = EventFd.create();
  readonly #poller = Poller.create(2);
  readonly #progress: () => void;
  readonly #ready = new Set<ProviderCq>();

  /**
   * `sourceFd` is readable when `progress` has something to do: a thread that waits here drives the
   * device.
   */
  constructor(sourceFd: number, progress: () => void) {
    this.#progress = progress;
    this.#poller.add(this.#event.fd, pollEvents.in, 0);
    this.#poller.add(sourceFd, pollEvents.in, 1);
  }

  get fd(): number {
    return this.#poller.fd;
  }

  take(): readonly ProviderCq[] {
    this.#progress();
    if (this.#ready.size === 0) return [];
    this.#event.take();
    const ready = [...this.#ready];
    this.#ready.clear();
    return ready;
  }

  notify(cq: ProviderCq): void {
    this.#ready.add(cq);
    this.#event.signal();
  }

  forget(cq: ProviderCq): void {
    if (this.#ready.delete(cq) && this.#ready.size === 0) this.#event.take();
  }

  close(): void {
    this.#poller.close();
    this.#event.close();
  }
}
