// Completion channels of a remote device: an epoll descriptor over our own events and the backend's bell.

import { EventFd, Poller, pollEvents } from '../../native/index.ts';
import type { ProviderChannel, ProviderCq } from '../../verbs/index.ts';

export class RemoteChannel implements ProviderChannel {
  readonly #event = EventFd.create();
  readonly #poller = Poller.create(2);
  readonly #attend: () => void;
  readonly #ready = new Set<ProviderCq>();

  /** `sourceFd` is readable when `attend` has something to do: whoever waits here hears for all. */
  constructor(sourceFd: number, attend: () => void) {
    this.#attend = attend;
    this.#poller.add(this.#event.fd, pollEvents.in, 0);
    this.#poller.add(sourceFd, pollEvents.in, 1);
  }

  get fd(): number {
    return this.#poller.fd;
  }

  take(): readonly ProviderCq[] {
    this.#attend();
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
