// Packets on their way out: headers are written here, and a turn's worth of packets is sealed and
// sent together. Packets of one size to one peer go as one datagram that the kernel cuts up.

import { SystemError } from '../../../errors.ts';
import { copyMemory, PacketSeal, SendList, SharedMemory, type Socket } from '../../../native/index.ts';
import type { FaultSource } from '../fault-plan.ts';
import { Pieces } from '../pieces.ts';
import type { Destination } from './address-book.ts';
import { encodeHeaders, ICRC_BYTES, MAX_HEADER_BYTES, type Packet } from './packet.ts';
import type { PiecesCursor } from './pieces-cursor.ts';

const SLAB_BYTES = 1 << 20;
const MAX_SENT = 1024;
const MAX_PIECES = 8192;
/** What the kernel takes as one: UDP_MAX_SEGMENTS, and a datagram's length. */
const MAX_SEGMENTS = 64;
const MAX_SEGMENTED_BYTES = 65_000;
const GROUP_WORDS = 5;
/** How soon a full socket buffer is tried again: it drains at the speed of the network. */
const RETRY_NS = 100_000;

/** What a transmitter needs of its wire. */
interface TransmitterHost {
  schedule(key: object, ns: number, action: () => void): void;
  unschedule(key: object): void;
  /** There is room again. */
  resume(): void;
}

export class Transmitter implements Disposable {
  /** Addresses first, as many bytes as were asked for; then packets. */
  readonly slab: SharedMemory;
  readonly counters = { sent: 0, unsendable: 0 };
  readonly #view: DataView;
  readonly #socket: Socket;
  readonly #host: TransmitterHost;
  readonly #faults: FaultSource | undefined;
  readonly #seal: PacketSeal;
  readonly #list: SendList;
  readonly #firstOffset: number;
  /**
   * Packets that go as one datagram: offset, bytes, bytes of each, offset and length of the
   * address.
   */
  readonly #groups = new Uint32Array(MAX_SENT * GROUP_WORDS);
  readonly #pieces = new Pieces();
  #groupCount = 0;
  /** Of the last group: packets in it, and whether no more may join. */
  #segments = 0;
  #isGroupClosed = true;
  #end: number;
  #maxSegments = MAX_SEGMENTS;
  /** The socket's buffer is full: nothing is added until what is here has gone. */
  #isBlocked = false;

  constructor(
    socket: Socket,
    host: TransmitterHost,
    addressBytes: number,
    localOffset: number,
    faults: FaultSource | undefined,
  ) {
    this.#socket = socket;
    this.#host = host;
    this.#faults = faults;
    this.slab = SharedMemory.create({ sizeBytes: addressBytes + SLAB_BYTES, name: 'roce-tx' });
    this.#view = new DataView(this.slab.buffer);
    this.#seal = new PacketSeal(this.slab, localOffset, MAX_SENT, MAX_PIECES);
    this.#list = new SendList(this.slab, 2 * MAX_SENT);
    this.#firstOffset = addressBytes;
    this.#end = addressBytes;
    // Faults are of single packets, so none are grouped.
    if (faults !== undefined) this.#maxSegments = 1;
  }

  get isBlocked(): boolean {
    return this.#isBlocked;
  }

  /** Whether there is room for a packet now; makes some if it must. */
  hasRoom(payloadBytes: number, pieces: number): boolean {
    if (this.#isBlocked) return false;
    const needed = MAX_HEADER_BYTES + payloadBytes + 3 + ICRC_BYTES;
    if (this.#fits(needed, pieces)) return true;
    this.flush();
    return !this.#isBlocked && this.#fits(needed, pieces);
  }

  #fits(bytes: number, pieces: number): boolean {
    return this.#end + bytes <= this.slab.sizeBytes && this.#seal.hasRoom(pieces) && this.#groupCount < MAX_SENT - 1;
  }

  /**
   * Adds a packet, of which `from` to `from + payloadBytes` of a message are the payload. There
   * must be room.
   */
  add(packet: Packet, to: Destination, payloadBytes: number, message: PiecesCursor | undefined, from: number): void {
    const offset = this.#end;
    packet.padBytes = -payloadBytes & 3;
    const headerBytes = encodeHeaders(this.#view, offset, packet);
    const bytes = headerBytes + payloadBytes + packet.padBytes + ICRC_BYTES;
    const identification = this.#join(offset, bytes, to);
    this.#seal.add(offset, headerBytes, payloadBytes, to.offset, identification);
    if (message !== undefined && payloadBytes > 0) message.gather(this.#seal, from, payloadBytes);
    this.#end += bytes;
    this.counters.sent++;
  }

  /**
   * Puts a packet into a group. Returns its IPv4 identification: sockets that do not fragment use
   * 0, and the kernel counts up from there when it cuts a datagram into pieces.
   */
  #join(offset: number, bytes: number, to: Destination): number {
    const groups = this.#groups;
    const last = (this.#groupCount - 1) * GROUP_WORDS;
    const joins =
      !this.#isGroupClosed &&
      groups[last + 3] === to.offset &&
      bytes <= groups[last + 2] &&
      groups[last + 1] + bytes <= MAX_SEGMENTED_BYTES;
    if (!joins) {
      const row = this.#groupCount++ * GROUP_WORDS;
      groups[row] = offset;
      groups[row + 1] = bytes;
      groups[row + 2] = bytes;
      groups[row + 3] = to.offset;
      groups[row + 4] = to.bytes;
      this.#segments = 1;
      this.#isGroupClosed = this.#maxSegments === 1;
      return 0;
    }
    groups[last + 1] += bytes;
    const identification = this.#segments++;
    // Only the last may be shorter.
    if (bytes < groups[last + 2] || this.#segments === this.#maxSegments) this.#isGroupClosed = true;
    return identification;
  }

  /** Sends what was added, as far as the socket takes it. */
  flush(): void {
    if (this.#groupCount === 0 || this.#isBlocked) return;
    this.#seal.run();
    for (let group = 0; group < this.#groupCount; group++) {
      const row = group * GROUP_WORDS;
      if (this.#faults === undefined) this.#enlist(row, this.#groups[row]);
      else this.#meetFate(row, this.#faults);
    }
    this.#groupCount = 0;
    this.#isGroupClosed = true;
    this.#send();
  }

  #enlist(row: number, offset: number): void {
    const groups = this.#groups;
    const segmentBytes = groups[row + 1] > groups[row + 2] ? groups[row + 2] : 0;
    this.#list.add(offset, groups[row + 1], segmentBytes, groups[row + 3], groups[row + 4]);
  }

  #meetFate(row: number, faults: FaultSource): void {
    const offset = this.#groups[row];
    const bytes = this.#groups[row + 1];
    const pieces = this.#pieces;
    pieces.clear();
    pieces.add(this.slab, offset, bytes);
    const fate = faults.next(pieces);
    if (fate.kind === 'drop' || fate.kind === 'disconnect') return;
    if (pieces.memories[0] !== this.slab) copyMemory(this.slab, offset, pieces.memories[0], 0, bytes);
    if (fate.kind === 'delay') {
      this.#sendLater(row, fate.ns);
      return;
    }
    for (let copy = 0; copy < pieces.count; copy++) this.#enlist(row, offset);
  }

  /** Sends one packet on its own after a time, behind later ones: the fault plan's delay. */
  #sendLater(row: number, ns: number): void {
    const [offset, bytes, , addressOffset, addressBytes] = this.#groups.subarray(row, row + GROUP_WORDS);
    const kept = new Uint8Array(this.slab.buffer).slice(offset, offset + bytes);
    this.#host.schedule(kept, ns, () => {
      this.flush();
      if (this.#isBlocked || this.slab.isClosed) return;
      new Uint8Array(this.slab.buffer).set(kept, this.#firstOffset);
      this.#list.add(this.#firstOffset, bytes, 0, addressOffset, addressBytes);
      this.#send();
    });
  }

  #send(): void {
    for (;;) {
      try {
        if (!this.#list.send(this.#socket)) {
          this.#block();
          return;
        }
        this.#end = this.#firstOffset;
        return;
      } catch (error) {
        // No route, or too long for a hop on the way: lost, as on any network. The peers' retries
        // tell their owners.
        if (!(error instanceof SystemError)) throw error;
        // A device without checksum offload cannot have datagrams cut up.
        if (error.code === 'EIO' || error.code === 'EINVAL') this.#maxSegments = 1;
        this.counters.unsendable++;
        this.#list.skip();
      }
    }
  }

  #block(): void {
    this.#isBlocked = true;
    this.#host.schedule(this, RETRY_NS, () => {
      this.#isBlocked = false;
      this.#send();
      if (!this.#isBlocked) this.#host.resume();
    });
  }

  close(): void {
    this.#host.unschedule(this);
    this.#seal.close();
    this.#list.close();
    this.slab.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
