// A link: the channel between a lane and a lane of a peer. Rings and streams outlive transports:
// when one breaks, the next goes on where it stopped.

import { constants } from 'node:os';
import { type Address, monotonicNs, SharedMemory, Socket } from '../native/index.ts';
import { ControlRecordWriter, type RecordWriting } from './control-record-writer.ts';
import { LEAST_WINDOW_BYTES } from './credits.ts';
import { KEY_BYTES, readKey } from './direct-records.ts';
import type { DirectOwner, DirectStream } from './direct-stream.ts';
import { DirectStreams } from './direct-streams.ts';
import { Flusher } from './flusher.ts';
import { HugeRings } from './huge-rings.ts';
import { IncomingRing } from './incoming-ring.ts';
import { Indexer } from './indexer.ts';
import type { LinkContext } from './link-context.ts';
import type { MirroredSlot } from './mirrored-slot.ts';
import { CoherentNotifier, type Notifier, WireNotifier } from './notifier.ts';
import { OPEN_PAYLOAD_BYTES, readOpen } from './open-record.ts';
import { OutgoingRing } from './outgoing-ring.ts';
import { Reader, type ReaderEvents } from './reader.ts';
import { payloadOf, recordKinds } from './record-layout.ts';
import {
  CONTROL_WORDS,
  controlOffset,
  type Geometry,
  type RingNumber,
  readerModes,
  regionBytes,
  ringStart,
} from './region-layout.ts';
import { RingPages } from './ring-pages.ts';
import { Stream, type StreamInfo, type StreamOwner } from './stream.ts';
import { StreamTable } from './stream-table.ts';
import type { Transport } from './transport.ts';

/** The kernel has no greater errno. */
const MAX_ERRNO = 4096;
/** A link is busy when this part of a ring went through it since the last beat. */
const BUSY_PART = 4;
/** So many bytes count as much work as one record. */
const MANY_BYTES = 16 * 1024;
/**
 * So often a device is polled that tells of everything: a lane that never sleeps owes
 * acknowledgements otherwise.
 */
const TURNS_A_POLL = 16;

export interface LinkOptions {
  readonly geometry: Geometry;
  readonly dataQps: number;
  readonly pollAfter: number;
  readonly firstWindowBytes: number;
  readonly windowBytes: number;
  /** Of the session; see `RingStart`. */
  readonly salt: number;
}

/** A socket that is connected to a server of this host, or about to be. */
export interface Leg {
  readonly socket: Socket;
  readonly isConnecting: boolean;
  readonly info: StreamInfo;
}

/** The lane, as its links see it. */
export interface LinkHost {
  /**
   * A client of the peer's host connects to a server of this one. Returns the leg, or the errno
   * with which the client is refused.
   */
  dialServer(client: Address, original: Address): Leg | number;
  onSocketClosed(stream: Stream): void;
}

export interface LinkEvents {
  /** The transport does not work any more; `isProtocolError`: because of what the peer sent. */
  onBroken(reason: string, isProtocolError: boolean): void;
}

export interface LinkCounters {
  readonly recordsIn: number;
  readonly recordsOut: number;
  readonly bytesIn: number;
  readonly bytesOut: number;
}

/** How far a side has read: what the other side must send again starts here. */
export interface ReadState {
  readonly position: number;
  readonly sequence: number;
}

export class Link implements StreamOwner, DirectOwner, ReaderEvents, Disposable {
  readonly context: LinkContext;
  readonly isDialer: boolean;
  readonly memory: SharedMemory;
  readonly #words: Uint32Array;
  readonly outgoing: OutgoingRing;
  readonly incoming: IncomingRing;
  readonly maxPayloadBytes: number;
  readonly firstWindowBytes: number;
  readonly windowBytes: number;
  readonly options: LinkOptions;
  readonly #host: LinkHost;
  readonly #events: LinkEvents;
  readonly #streams: StreamTable<Stream | DirectStream>;
  /** Streams whose socket is open; it may outlive the stream id. */
  readonly #sockets = new Set<Stream>();
  readonly #direct = new DirectStreams(this);
  readonly #writer: ControlRecordWriter;
  readonly #flusher: Flusher;
  readonly #reader: Reader;
  readonly #indexer: Indexer;
  readonly #hugeRings: HugeRings;
  readonly #incomingPages: RingPages;
  readonly #outgoingPages: RingPages;
  /** Up to here pages of the outgoing ring were given back, or left alone. */
  #trimmedPosition = ringStart.position;
  /** Positions of the two rings at the last beat. */
  #writtenAtBeat = ringStart.position;
  #readAtBeat = ringStart.position;
  #transport: Transport | undefined;
  #notifier: Notifier | undefined;
  #isClosed = false;
  /** No transport was agreed on yet. */
  #isFresh = true;
  /**
   * Records that the peer has not read are in our own memory, whatever becomes of the transport.
   */
  #isHome = true;
  /** Streams that were opened here, by either side. */
  #openings = 0;
  /** The same, as of the last beat; and when it last was in use. */
  #openingsAtBeat = 0;
  #usedNs = monotonicNs();
  /** Where the outgoing ring was when the last stream ended. */
  #endPosition = ringStart.position;
  /** The peer wants idle streams to give credit back. */
  #isPeerShort = false;
  #pingSentNs = 0;
  /** Bytes moved in earlier turns. */
  #countedBytes = 0;
  #turns = 0;
  /** When the last ping was sent that has been answered. */
  heardNs = 0;
  roundTripUs = -1;

  constructor(context: LinkContext, isDialer: boolean, options: LinkOptions, host: LinkHost, events: LinkEvents) {
    const { geometry } = options;
    this.context = context;
    this.isDialer = isDialer;
    this.options = options;
    this.#host = host;
    this.#events = events;
    this.memory = SharedMemory.create({ sizeBytes: regionBytes(geometry), name: 'channel' });
    this.#words = new Uint32Array(this.memory.buffer);
    const start = { ...ringStart, salt: options.salt };
    this.outgoing = new OutgoingRing(geometry, isDialer ? 0 : 1, this.memory, start);
    this.incoming = new IncomingRing(geometry, isDialer ? 1 : 0, this.memory, start);
    this.maxPayloadBytes = payloadOf(geometry.maxRecordSlots, geometry.slotBytes);
    this.firstWindowBytes = options.firstWindowBytes;
    this.windowBytes = options.windowBytes;
    this.#streams = new StreamTable(isDialer);
    this.#writer = new ControlRecordWriter(this.outgoing);
    this.#flusher = new Flusher(this.outgoing, options);
    this.#reader = new Reader(this.incoming, context.ranges, this);
    this.#indexer = new Indexer(this.incoming);
    this.#hugeRings = new HugeRings(this.memory, geometry);
    this.#incomingPages = new RingPages(this.memory, geometry, this.incoming.number);
    this.#outgoingPages = new RingPages(this.memory, geometry, this.outgoing.number);
  }

  get isOverTcp(): boolean {
    return this.#transport?.wire === 'tcp';
  }

  get isUp(): boolean {
    return this.#notifier !== undefined;
  }

  get transport(): Transport | undefined {
    return this.#transport;
  }

  get streams(): Iterable<Stream> {
    return this.#sockets;
  }

  /** Those with a slot, open or not. */
  get directStreams(): Iterable<DirectStream> {
    return this.#direct;
  }

  get streamCount(): number {
    return this.#streams.count;
  }

  /** Streams of connections: without direct ones that have left their slots. */
  get connectionCount(): number {
    let count = 0;
    for (const stream of this.#streams) if (!stream.isDirect || stream.hasSlot) count++;
    return count;
  }

  get counters(): LinkCounters {
    const [from, to] = [this.#reader, this.#writer];
    return { recordsIn: from.records, recordsOut: to.records, bytesIn: from.bytes, bytesOut: to.bytes };
  }

  /** When it was last seen to be in use, at a beat or before. */
  get usedNs(): number {
    return this.#usedNs;
  }

  /** No stream is left, and the peer has read all that was written for streams. */
  get isUnused(): boolean {
    const isRead = (this.outgoing.peerPosition - this.#endPosition) >>> 0 < 0x8000_0000;
    return isRead && this.#streams.count === 0 && this.#sockets.size === 0 && this.#direct.count === 0;
  }

  get readState(): ReadState {
    return { position: this.incoming.position, sequence: this.incoming.sequence };
  }

  /**
   * Opens a stream for a client of this host, to a server of the peer's. False when there are too
   * many streams.
   */
  open(socket: Socket, info: StreamInfo): boolean {
    const id = this.#streams.allocate();
    if (id < 0) return false;
    const stream = new Stream(id, this, socket, info, LEAST_WINDOW_BYTES, false);
    this.#set(stream);
    this.#sockets.add(stream);
    return true;
  }

  #set(stream: Stream | DirectStream): void {
    this.#openings++;
    this.#streams.set(stream);
  }

  /**
   * Mirrors a slot to that of the peer which has the same key: one of the two lanes opens the
   * stream, the other expects it. Undefined when there are too many streams.
   */
  mirror(key: string, slot: MirroredSlot, isOpener: boolean): DirectStream | undefined {
    if (!isOpener) return this.#direct.add(key, slot);
    const id = this.#streams.allocate();
    if (id < 0) return undefined;
    const stream = this.#direct.add(key, slot);
    stream.open(id);
    this.#set(stream);
    return stream;
  }

  /**
   * Goes on with a new transport, both sides of which are connected. `peer` is how far the peer has
   * read. False when that cannot be.
   */
  resume(transport: Transport, peer: ReadState): boolean {
    this.suspend();
    const { outgoing, incoming } = this;
    if (!this.#isHome || !outgoing.restart(peer.position, readerModes.events)) return false;
    const { window } = transport;
    if (!outgoing.moveTo(window?.memory ?? this.memory)) return false;
    this.#transport = transport;
    this.#indexer.told(incoming.position);
    if (window === undefined) {
      this.#flusher.restart(outgoing.peerPosition);
      this.#notifier = new WireNotifier(incoming, outgoing);
    } else {
      this.#flusher.restart(outgoing.position);
      const words = (memory: SharedMemory, ring: RingNumber): Uint32Array =>
        new Uint32Array(memory.buffer, controlOffset(ring), CONTROL_WORDS);
      this.#notifier = new CoherentNotifier(incoming, outgoing, {
        ownOutgoing: words(this.memory, outgoing.number),
        ownIncoming: words(this.memory, incoming.number),
        peerOutgoing: words(window.memory, outgoing.number),
        peerIncoming: words(window.memory, incoming.number),
      });
      // The peer may sleep already, on what we wrote while it was away.
      transport.postNotification(outgoing.position);
    }
    return true;
  }

  /**
   * Nothing is read or sent until the next transport; data of programs waits. The session closes
   * the transport.
   */
  suspend(): void {
    this.#transport = undefined;
    this.#notifier = undefined;
    // Programs go on sending, and the peer's memory is about to be unmapped.
    this.#isHome = this.#isHome && this.outgoing.moveTo(this.memory);
  }

  /**
   * Clears the incoming ring, which nobody writes now: the peer sends again what was not read (see
   * `readState`).
   */
  forgetUnread(): void {
    // Nobody has written there yet, and wiping would touch all of its pages.
    if (this.#isFresh) this.#isFresh = false;
    else this.incoming.wipe();
  }

  /**
   * One turn of all stages. Returns how much was done: records, and more for those with many bytes.
   */
  turn(isPolling: boolean): number {
    const transport = this.#transport;
    const notifier = this.#notifier;
    if (transport === undefined || notifier === undefined) return 0;
    if (isPolling || (transport.window === undefined && this.#isPollDue(transport))) transport.poll();
    // A completion may have broken it.
    if (this.#notifier === undefined) return 1;
    let done = this.#reader.read();
    if (done < 0) {
      this.#events.onBroken(this.#reader.problem, true);
      return 1;
    }
    notifier.awake(transport, done > 0);
    if (!this.outgoing.refresh()) {
      this.#events.onBroken('its read position is past what was written', true);
      return 1;
    }
    done += this.#writer.write();
    const hasRoom = this.#index(transport, notifier);
    this.#flush(transport, notifier, hasRoom);
    const before = this.#countedBytes;
    this.#countedBytes = this.#reader.bytes + this.#writer.bytes;
    return done + Math.floor((this.#countedBytes - before) / MANY_BYTES);
  }

  #isPollDue({ isTold }: Transport): boolean {
    return !isTold || ++this.#turns % TURNS_A_POLL === 0;
  }

  /** True when the peer waits for room, which there is now. */
  #index(transport: Transport, notifier: Notifier): boolean {
    if (!this.#indexer.isDue && !(this.#indexer.isBehind && notifier.isRoomWanted)) return false;
    this.#indexer.publish(transport, notifier.mode);
    return notifier.mustNotifyRoom();
  }

  /** Sends what programs wrote meanwhile. */
  flush(): void {
    if (this.#transport !== undefined && this.#notifier !== undefined) this.#flush(this.#transport, this.#notifier);
  }

  #flush(transport: Transport, notifier: Notifier, hasRoom = false): void {
    if (!this.#flusher.hasWork && !hasRoom) return;
    if (transport.window !== undefined) this.#flusher.notify(transport, notifier, hasRoom);
    else if (!this.#flusher.flush(transport, notifier)) {
      this.#events.onBroken('it has overwritten records that were on their way to it', true);
    }
  }

  /** True when the lane may block: what the peer writes from now on wakes it. */
  prepareSleep(): boolean {
    const transport = this.#transport;
    if (transport === undefined || this.#notifier === undefined) return true;
    // In shared memory the doorbell wakes us, and no completion matters.
    if (transport.window === undefined) {
      transport.arm();
      transport.poll();
    }
    const notifier = this.#notifier;
    if (notifier === undefined || this.#writer.hasWork) return false;
    // A completion may have made room for records that waited.
    this.#flush(transport, notifier);
    if (this.#notifier === undefined || (this.#flusher.hasWork && transport.inFlight === 0)) return false;
    if (this.#writer.isWaitingForRoom && !notifier.prepareRoomWait()) return false;
    return notifier.prepareSleep(transport);
  }

  /** Several times a second: huge pages, the index, a ping. */
  beat(nowNs: number): void {
    if (this.#transport === undefined || this.#notifier === undefined) return;
    this.#hugeRings.consider(this.incoming.number, this.#reader.bytes);
    // In shared memory the peer's copy is written instead.
    if (this.#transport.window === undefined) this.#hugeRings.consider(this.outgoing.number, this.#writer.bytes);
    this.#trim(this.#transport);
    // However few records were read: what the peer's status says of its ring is then true.
    if (this.#indexer.isBehind) this.#indexer.publish(this.#transport, this.#notifier.mode);
    for (const stream of this.#sockets) stream.beat(this.#isPeerShort);
    if (!this.isUnused || this.#openings !== this.#openingsAtBeat) this.#usedNs = nowNs;
    this.#openingsAtBeat = this.#openings;
    this.#pingSentNs = nowNs;
    this.#writer.enqueuePing(recordKinds.ping, (nowNs / 1000) >>> 0, this.context.budget.isShort ? 0 : -1);
  }

  /** Pages are kept where they are used again soon. */
  #trim(transport: Transport): void {
    const { slots } = this.options.geometry;
    const { peerPosition, number, usedSlots, position } = this.outgoing;
    // Neither is more than 2^32 slots in a beat.
    const moved = ((position - this.#writtenAtBeat) >>> 0) + ((this.incoming.position - this.#readAtBeat) >>> 0);
    const isBusy = moved > slots / BUSY_PART;
    this.#writtenAtBeat = position;
    this.#readAtBeat = this.incoming.position;
    const trimmed = this.#trimmedPosition;
    this.#trimmedPosition = peerPosition;
    if (isBusy || !RingPages.mayDiscard(transport.wire)) return;
    if (!this.#hugeRings.has(this.incoming.number)) {
      this.#incomingPages.discard(this.#indexer.published, this.incoming.position);
    }
    // In shared memory records are written to the peer's memory alone.
    if (transport.window !== undefined || this.#hugeRings.has(number)) return;
    this.#outgoingPages.discard(trimmed, peerPosition, slots - usedSlots);
  }

  /** Ends all streams: the peer is gone, or made a protocol error. `free` frees the memory. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.suspend();
    this.#writer.clear();
    for (const stream of this.#sockets) stream.abandon();
    this.#direct.abandon();
  }

  /** Once no transport uses it any more. */
  free(): void {
    this.close();
    this.memory.close();
  }

  [Symbol.dispose](): void {
    this.free();
  }

  // Transport's events

  onNotification(position: number): void {
    this.#notifier?.onNotification(position);
  }

  onControlNotification(): void {
    if (this.#notifier?.onControlNotification() !== true) return;
    const { position } = this.outgoing;
    if (!this.#flusher.hasWork && this.#transport?.postNotification(position) === true)
      this.#notifier.notified(position);
  }

  // StreamOwner

  enqueue(stream: RecordWriting): void {
    this.#writer.enqueue(stream);
  }

  waitForRoom(stream: RecordWriting): void {
    this.#writer.waitForRoom(stream);
  }

  wrote(sizeBytes: number): void {
    this.#writer.countData(sizeBytes);
  }

  idFree(stream: Stream | DirectStream): void {
    this.#streams.delete(stream);
    this.#endPosition = this.outgoing.position;
  }

  slotLeft(stream: DirectStream): void {
    this.#direct.delete(stream);
  }

  socketClosed(stream: Stream): void {
    this.#sockets.delete(stream);
    this.#host.onSocketClosed(stream);
  }

  // ReaderEvents

  streamOf(id: number): Stream | DirectStream | undefined {
    return this.#streams.get(id);
  }

  onRecord(kind: number, id: number): string {
    const { credit, value } = this.incoming;
    if (kind === recordKinds.open) return this.#onOpen(id, credit);
    if (kind === recordKinds.openDirect) return this.#onOpenDirect(id);
    if (kind === recordKinds.ping) {
      this.#isPeerShort = credit >= 0;
      this.#writer.enqueuePing(recordKinds.pong, value);
      return '';
    }
    if (kind === recordKinds.pong) {
      this.#onPong(value);
      return '';
    }
    const stream = this.#streams.get(id);
    if (stream === undefined) {
      // The peer wrote it before it knew that the stream was over.
      const isLate = kind === recordKinds.credit || kind === recordKinds.returned || kind === recordKinds.reset;
      return isLate ? '' : `kind ${kind} of stream ${id}, which is not open`;
    }
    if (stream.isDirect) return stream.onRecord(this.incoming, this.#words);
    if (kind === recordKinds.returned) {
      return stream.onReturned(value) ? '' : `stream ${id} gives back more credit than it has`;
    }
    if (kind > recordKinds.pong) return `kind ${kind} of stream ${id}, which is not direct`;
    if (credit >= 0) stream.onCredit(credit);
    if (kind === recordKinds.opened) stream.onOpened();
    else if (kind === recordKinds.shut) stream.onShut();
    else if (kind === recordKinds.reset) stream.onReset();
    else if (kind === recordKinds.refused) {
      // Whatever number the peer sent, its server was not reached.
      stream.refusal = value > 0 && value < MAX_ERRNO ? value : constants.errno.ECONNREFUSED;
      stream.onReset();
    }
    return '';
  }

  #onPong(value: number): void {
    const sent = (this.#pingSentNs / 1000) >>> 0;
    // A ping that was sent before a long recovery is older than what was heard since.
    this.heardNs = Math.max(this.heardNs, this.#pingSentNs);
    if (sent === value) this.roundTripUs = (monotonicNs() - this.#pingSentNs) / 1000;
  }

  #onOpenDirect(id: number): string {
    const { incoming } = this;
    if (!this.#streams.isFreeForPeer(id)) return `stream ${id} is opened a second time`;
    if (incoming.size !== KEY_BYTES) return `stream ${id} is opened without its key`;
    const stream = this.#direct.expected(readKey(this.#words, incoming.payloadOffset));
    stream.opened(id);
    this.#set(stream);
    return '';
  }

  #onOpen(id: number, credit: number): string {
    const { incoming } = this;
    if (!this.#streams.isFreeForPeer(id)) return `stream ${id} is opened a second time`;
    if (incoming.size !== OPEN_PAYLOAD_BYTES || credit < 0) return `stream ${id} is opened without its addresses`;
    const open = readOpen(this.#words, incoming.payloadOffset);
    if (typeof open === 'string') return `stream ${id} is opened to ${open}`;
    const { client, original } = open;
    const leg = this.#host.dialServer(client, original);
    if (typeof leg === 'number') {
      const info = { client, original, isOpener: false, command: '', pid: 0, netns: 0 };
      const refused = new Stream(id, this, new Socket(-1), info, credit, false);
      this.#set(refused);
      refused.refuse(leg);
      return '';
    }
    const stream = new Stream(id, this, leg.socket, leg.info, credit, leg.isConnecting);
    this.#set(stream);
    this.#sockets.add(stream);
    if (!leg.isConnecting) stream.accepted();
    return '';
  }
}
