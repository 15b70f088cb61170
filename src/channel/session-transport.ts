// The transport of a session: one at a time, watched by the lane's loop; those that were dropped
// are closed before the next is made.

import type { Watched } from '../loop/index.ts';
import { pollEvents } from '../native/index.ts';
import type { Device } from '../verbs/index.ts';
import type { Link } from './link.ts';
import type { LinkContext } from './link-context.ts';
import { Transport, type TransportOptions } from './transport.ts';

/** The session, as its transport sees it. */
interface TransportHost {
  openDevice(name: string): Device;
  /** The promise needs Node's loop to settle. */
  wait(work: Promise<void>): void;
  /** The transport does not work any more. */
  failed(reason: string): void;
}

/** The lane polls all rings after each event: that it was woken is enough. */
const rung: Watched = { onEvents: () => {} };

export class SessionTransport implements Watched {
  readonly #context: LinkContext;
  readonly #host: TransportHost;
  readonly #leaving: Transport[] = [];
  #link: Link | undefined;
  #transport: Transport | undefined;
  #token = -1;
  #doorbellToken = -1;
  /** Something happened that a turn is to look at. */
  isRung = false;

  constructor(context: LinkContext, host: TransportHost) {
    this.#context = context;
    this.#host = host;
  }

  get current(): Transport | undefined {
    return this.#transport;
  }

  /** Returns the transport, or why there is none. */
  create(link: Link, device: string, given: Omit<TransportOptions, 'slotBytes'>): Transport | string {
    this.drop();
    const options = { ...given, slotBytes: link.options.geometry.slotBytes };
    try {
      const transport = new Transport(this.#host.openDevice(device), link.memory, link.incoming.number, options, {
        onNotification: (position) => link.onNotification(position),
        onControlNotification: () => link.onControlNotification(),
        onFailure: (reason) => {
          if (this.#transport === transport) this.#host.failed(reason);
        },
      });
      this.#token = this.#watch(transport);
      this.#link = link;
      this.#transport = transport;
      return transport;
    } catch (error) {
      return `${device}: ${messageOf(error)}`;
    }
  }

  /** The kernel may refuse: with hundreds of links on one device epoll_ctl gives EINVAL. */
  #watch(transport: Transport): number {
    try {
      return this.#context.loop.watch(transport.channel.fd, pollEvents.in, this);
    } catch (error) {
      transport.close();
      throw error;
    }
  }

  /** Maps the peer's memory where the wire allows it, then goes on. */
  map(then: () => void): void {
    const transport = this.#transport;
    if (transport === undefined) return;
    if (transport.wire !== 'shm') {
      then();
      return;
    }
    const done = async (): Promise<void> => {
      try {
        await transport.map();
        if (this.#transport === transport) then();
      } catch (error) {
        if (this.#transport === transport) this.#host.failed(messageOf(error));
      }
    };
    this.#host.wait(done());
  }

  /** The link is up: the peer's doorbell wakes the lane. */
  begin(): void {
    const doorbell = this.#transport?.doorbell;
    if (doorbell !== undefined)
      this.#doorbellToken = this.#context.loop.watch(doorbell.fd, pollEvents.in | pollEvents.edge, rung);
    // Records and programs have waited since.
    this.isRung = true;
    this.#context.loop.again({ resume: () => {} });
  }

  drop(): void {
    const transport = this.#transport;
    if (transport === undefined) return;
    this.#transport = undefined;
    this.#link?.suspend();
    this.#link = undefined;
    const { loop } = this.#context;
    loop.unwatch(transport.channel.fd, this.#token);
    if (transport.doorbell !== undefined && this.#doorbellToken >= 0) {
      loop.unwatch(transport.doorbell.fd, this.#doorbellToken);
      this.#doorbellToken = -1;
    }
    this.#leaving.push(transport);
    // Not at once: this may be one of its callbacks.
    loop.again({ resume: () => this.closeLeaving() });
  }

  /** From now on nothing arrives of what was on its way. */
  closeLeaving(): void {
    for (const transport of this.#leaving.splice(0)) transport.close();
  }

  /** Breaks the transport on purpose, for tests and soaks. */
  break(): void {
    this.#transport?.breakQps();
    this.isRung = true;
  }

  // The transport's channel has something.
  onEvents(): void {
    this.isRung = true;
    this.#transport?.channel.take();
    // Before the link is up nobody else polls.
    if (this.#link?.transport === undefined) this.#transport?.poll();
  }
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
