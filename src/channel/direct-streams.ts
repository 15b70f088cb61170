// The direct streams of a link: those that are open, and those that the peer is about to open.

import { type DirectOwner, DirectStream } from './direct-stream.ts';
import type { MirroredSlot } from './mirrored-slot.ts';

export class DirectStreams implements Iterable<DirectStream> {
  readonly #owner: DirectOwner;
  /** Those with a slot, by the key of their connection. */
  readonly #byKey = new Map<string, DirectStream>();

  constructor(owner: DirectOwner) {
    this.#owner = owner;
  }

  get count(): number {
    return this.#byKey.size;
  }

  /** A stream for a slot, which is not open yet. A key names one stream at a time. */
  add(key: string, slot: MirroredSlot): DirectStream {
    this.#byKey.get(key)?.lose();
    const stream = new DirectStream(this.#owner, key, slot);
    this.#byKey.set(key, stream);
    return stream;
  }

  /** The stream that the peer opens. Where nobody waits for that, it is one without a slot. */
  expected(key: string): DirectStream {
    const stream = this.#byKey.get(key);
    return stream !== undefined && stream.id < 0 ? stream : new DirectStream(this.#owner, key, undefined);
  }

  /** It has left its slot. */
  delete(stream: DirectStream): void {
    if (this.#byKey.get(stream.key) === stream) this.#byKey.delete(stream.key);
  }

  /** The link is gone, and with it all of them. */
  abandon(): void {
    for (const stream of this.#byKey.values()) stream.abandon();
  }

  [Symbol.iterator](): Iterator<DirectStream> {
    return this.#byKey.values();
  }
}
