// The writer: puts into the ring what streams have to say. Their data they receive into it themselves (see Stream.resume).

import { endpointOf } from '../steering/index.ts';
import { OPEN_PAYLOAD_BYTES, recordKinds } from './layout.ts';
import type { OutgoingRing } from './outgoing-ring.ts';
import type { Stream } from './stream.ts';
import { says } from './stream-ends.ts';

export class Writer {
  readonly #ring: OutgoingRing;
  /** Streams with something to say, first come first served. */
  #speakers: Stream[] = [];
  #speaking: Stream[] = [];
  /** Streams whose data found no room. */
  #waiting: Stream[] = [];
  #resuming: Stream[] = [];
  #pings: number[] = [];
  records = 0;
  bytes = 0;

  constructor(ring: OutgoingRing) {
    this.#ring = ring;
  }

  get hasWork(): boolean {
    return this.#speakers.length > 0 || this.#pings.length > 0;
  }

  speak(stream: Stream): void {
    this.#speakers.push(stream);
  }

  waitForRoom(stream: Stream): void {
    this.#waiting.push(stream);
  }

  get isWaitingForRoom(): boolean {
    return this.#waiting.length > 0;
  }

  /** A `ping` or a `pong` for the next occasion; those that find no room are left out. */
  sound(kind: number, value: number): void {
    if (this.#pings.length < 16) this.#pings.push(kind, value);
  }

  /** Says what is to be said, then lets those go on that waited for room. How much was done. */
  write(): number {
    const before = this.records;
    if (this.#pings.length > 0) this.#writePings();
    if (this.#speakers.length > 0) this.#speak();
    if (this.#waiting.length > 0 && this.#ring.fits(0)) this.#resume();
    return this.records - before;
  }

  clear(): void {
    this.#speakers.length = 0;
    this.#waiting.length = 0;
    this.#pings.length = 0;
  }

  #writePings(): void {
    for (let index = 0; index < this.#pings.length; index += 2) {
      if (!this.#ring.fits(0)) break;
      this.#ring.commit(this.#pings[index], 0, 0, -1, this.#pings[index + 1]);
      this.records++;
    }
    this.#pings.length = 0;
  }

  #speak(): void {
    const speaking = this.#speakers;
    this.#speakers = this.#speaking;
    this.#speaking = speaking;
    let index = 0;
    for (; index < speaking.length; index++) if (!this.#sayAll(speaking[index])) break;
    // No room: these are first the next time.
    for (; index < speaking.length; index++) this.#speakers.push(speaking[index]);
    speaking.length = 0;
  }

  #resume(): void {
    const resuming = this.#waiting;
    this.#waiting = this.#resuming;
    this.#resuming = resuming;
    for (let index = 0; index < resuming.length; index++) resuming[index].resume();
    resuming.length = 0;
  }

  /** False when the ring is full. */
  #sayAll(stream: Stream): boolean {
    while (stream.ends.saying !== 0) {
      // The lowest flag first: they are in the order in which they may be said.
      const flag = stream.ends.saying & -stream.ends.saying;
      if (flag === says.credit && stream.isCreditTold) {
        stream.said(flag);
        continue;
      }
      if (!this.#ring.fits(flag === says.open ? OPEN_PAYLOAD_BYTES : 0)) return false;
      this.records++;
      this.#say(stream, flag);
      stream.said(flag);
    }
    return true;
  }

  #say(stream: Stream, flag: number): void {
    const ring = this.#ring;
    switch (flag) {
      case says.open:
        this.#putOpen(stream);
        ring.commit(recordKinds.open, stream.id, OPEN_PAYLOAD_BYTES, stream.tellCredit());
        break;
      case says.opened:
        ring.commit(recordKinds.opened, stream.id, 0, stream.tellCredit());
        break;
      case says.refused:
        ring.commit(recordKinds.refused, stream.id, 0, -1, stream.refusal);
        break;
      case says.credit:
        ring.commit(recordKinds.credit, stream.id, 0, stream.tellCredit());
        break;
      case says.shut:
        ring.commit(recordKinds.shut, stream.id, 0);
        break;
      default:
        ring.commit(recordKinds.reset, stream.id, 0);
    }
  }

  #putOpen({ about }: Stream): void {
    const words = new Uint32Array(this.#ring.memory.buffer, this.#ring.payloadOffset, OPEN_PAYLOAD_BYTES / 4);
    const [client, original] = [endpointOf(about.client), endpointOf(about.original)];
    words.set(client.address, 0);
    words[4] = client.port;
    words.set(original.address, 5);
    words[9] = original.port;
  }
}
