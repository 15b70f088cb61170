// A link: one lane's channel to one peer. Its session, the rings and the streams, outlives transports: when one breaks,
// the next goes on where it stopped.

import { constants } from 'node:os';
import { type Address, monotonicNs, SharedMemory, Socket } from '../native/index.ts';
import { addressOf, type IpEndpoint } from '../steering/index.ts';
import { LEAST_WINDOW_BYTES } from './credits.ts';
import { Flusher } from './flusher.ts';
import { HugeRings } from './huge-rings.ts';
import { IncomingRing } from './incoming-ring.ts';
import { Indexer } from './indexer.ts';
import {
  CONTROL_WORDS,
  controlOffset,
  type Geometry,
  OPEN_ENDPOINT_WORDS,
  OPEN_PAYLOAD_BYTES,
  payloadOf,
  type RingNumber,
  readerModes,
  recordKinds,
  regionBytes,
  ringStart,
} from './layout.ts';
import type { LaneParts } from './link-context.ts';
import { CoherentNotifier, type Notifier, WireNotifier } from './notifier.ts';
import { OutgoingRing } from './outgoing-ring.ts';
import { Reader, type ReaderEvents } from './reader.ts';
import { Stream, type StreamAbout, type StreamOwner } from './stream.ts';
import { StreamTable } from './stream-table.ts';
import type { Transport } from './transport.ts';
import { Writer } from './writer.ts';

/** The kernel has no greater ones. */
const MAX_ERRNO = 4096;
/** As much work as a record of its own. */
const MANY_BYTES = 16 * 1024;

export interface LinkOptions {
  readonly geometry: Geometry;
  readonly dataQps: number;
  readonly pollAfter: number;
  readonly firstWindowBytes: number;
  readonly windowBytes: number;
  /** Of the session: see `RingStart`. */
  readonly salt: number;
}

/** What a link asks of its lane. */
export interface LinkEvents {
  /** A program of the peer's host calls: a socket on its way to the server, or the errno why not. */
  onCall(client: Address, original: Address): { socket: Socket; isConnecting: boolean; about: StreamAbout } | number;
  onSocketClosed(stream: Stream): void;
  /** The transport does not work any more; `isLie`: because the peer breaks the rules. */
  onBroken(reason: string, isLie: boolean): void;
}

/** Where the reading stands: what the other side must send again starts here. */
export interface ReadState {
  readonly position: number;
  readonly sequence: number;
}

export class Link implements StreamOwner, ReaderEvents, Disposable {
  readonly parts: LaneParts;
  readonly isDialer: boolean;
  readonly memory: SharedMemory;
  readonly #words: Uint32Array;
  readonly outgoing: OutgoingRing;
  readonly incoming: IncomingRing;
  readonly maxPayloadBytes: number;
  readonly firstWindowBytes: number;
  readonly windowBytes: number;
  readonly options: LinkOptions;
  readonly #events: LinkEvents;
  readonly #streams: StreamTable<Stream>;
  /** Sockets that outlive their streams' names. */
  readonly #sockets = new Set<Stream>();
  readonly #writer: Writer;
  readonly #flusher: Flusher;
  readonly #reader: Reader;
  readonly #indexer: Indexer;
  readonly #pages: HugeRings;
  #transport: Transport | undefined;
  #notifier: Notifier | undefined;
  #isClosed = false;
  /** What the peer has not read is with us, whatever becomes of the transport. */
  #isHome = true;
  #pingSentNs = 0;
  /** Of those that were read and written, in the turns before. */
  #countedBytes = 0;
  /** The last that was answered. */
  heardNs = 0;
  roundTripUs = -1;

  constructor(parts: LaneParts, isDialer: boolean, options: LinkOptions, events: LinkEvents) {
    const { geometry } = options;
    this.parts = parts;
    this.isDialer = isDialer;
    this.options = options;
    this.#events = events;
    this.memory = SharedMemory.create({ sizeBytes: regionBytes(geometry), name: 'channel' });
    this.#words = new Uint32Array(this.memory.buffer);
    const start = { ...ringStart, salt: options.salt };
    this.outgoing = new OutgoingRing(geometry, isDialer ? 0 : 1, this.memory, start);
    this.incoming = new IncomingRing(geometry, isDialer ? 1 : 0, this.memory, start);
    this.maxPayloadBytes = payloadOf(geometry.maxRecordSlots, geometry.slotBytes);
    this.firstWindowBytes = options.firstWindowBytes;
    this.windowBytes = options.windowBytes;
    this.#streams = new StreamTable<Stream>(isDialer);
    this.#writer = new Writer(this.outgoing);
    this.#flusher = new Flusher(this.outgoing, options);
    this.#reader = new Reader(this.incoming, parts.ranges, this);
    this.#indexer = new Indexer(this.incoming);
    this.#pages = new HugeRings(this.memory, geometry);
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

  get streamCount(): number {
    return this.#streams.count;
  }

  get counters(): { recordsIn: number; recordsOut: number; bytesIn: number; bytesOut: number } {
    const [from, to] = [this.#reader, this.#writer];
    return { recordsIn: from.records, recordsOut: to.records, bytesIn: from.bytes, bytesOut: to.bytes };
  }

  get readState(): ReadState {
    return { position: this.incoming.position, sequence: this.incoming.sequence };
  }

  /** Connects a program of this host to a server of the peer's. False when there are too many streams. */
  open(socket: Socket, about: StreamAbout): boolean {
    const id = this.#streams.allocate();
    if (id < 0) return false;
    const stream = new Stream(id, this, socket, about, LEAST_WINDOW_BYTES, false);
    this.#streams.set(stream);
    this.#sockets.add(stream);
    return true;
  }

  /**
   * Goes on with a new transport, both sides of which are connected. `peer` is where the peer's reading stands. False when
   * that cannot be: it has read what was never written.
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

  /** Nothing is read or sent until the next transport; programs' bytes wait. The transport is its owner's to close. */
  suspend(): void {
    this.#transport = undefined;
    this.#notifier = undefined;
    // Programs go on writing, and the peer's memory is about to be unmapped.
    this.#isHome = this.#isHome && this.outgoing.moveTo(this.memory);
  }

  /** Nobody writes into our memory now, and the peer will send again what was not read: see `readState`. */
  forgetUnread(): void {
    this.incoming.wipe();
  }

  /** One turn of all stages. How much was done: records, and more for those with many bytes. */
  turn(isPolling: boolean): number {
    const transport = this.#transport;
    const notifier = this.#notifier;
    if (transport === undefined || notifier === undefined) return 0;
    if (isPolling || transport.window === undefined) transport.poll();
    // A completion may have broken it.
    if (this.#notifier === undefined) return 1;
    let done = this.#reader.read();
    if (done < 0) {
      this.#events.onBroken(this.#reader.problem, true);
      return 1;
    }
    notifier.awake(transport, done > 0);
    if (!this.outgoing.refresh()) {
      this.#events.onBroken('it says it has read what was never written', true);
      return 1;
    }
    done += this.#writer.write();
    const isRoomNews = this.#index(transport, notifier);
    this.#flush(transport, notifier, isRoomNews);
    const before = this.#countedBytes;
    this.#countedBytes = this.#reader.bytes + this.#writer.bytes;
    return done + Math.floor((this.#countedBytes - before) / MANY_BYTES);
  }

  /** True when the peer waits for the room that there is now. */
  #index(transport: Transport, notifier: Notifier): boolean {
    if (!this.#indexer.isDue && !(this.#indexer.hasNews && notifier.isRoomWanted)) return false;
    this.#indexer.publish(transport, notifier.mode);
    return notifier.mustNotifyRoom();
  }

  /** What programs sent meanwhile goes out. */
  flush(): void {
    if (this.#transport !== undefined && this.#notifier !== undefined) this.#flush(this.#transport, this.#notifier);
  }

  #flush(transport: Transport, notifier: Notifier, isRoomNews = false): void {
    if (!this.#flusher.hasWork && !isRoomNews) return;
    if (transport.window !== undefined) this.#flusher.tell(transport, notifier, isRoomNews);
    else if (!this.#flusher.flush(transport, notifier)) {
      this.#events.onBroken('it has overwritten what was on its way to it', true);
    }
  }

  /** True when the lane may block: what the peer writes from now on wakes it. */
  prepareSleep(): boolean {
    const transport = this.#transport;
    if (transport === undefined || this.#notifier === undefined) return true;
    // In shared memory the bell wakes us, and nothing of importance completes.
    if (transport.window === undefined) {
      transport.arm();
      transport.poll();
    }
    const notifier = this.#notifier;
    if (notifier === undefined || this.#writer.hasWork) return false;
    // What just completed may be what records waited for.
    this.#flush(transport, notifier);
    if (this.#notifier === undefined || (this.#flusher.hasWork && transport.inFlight === 0)) return false;
    if (this.#writer.isWaitingForRoom && !notifier.prepareRoomWait()) return false;
    return notifier.prepareSleep(transport);
  }

  /** Now and then. */
  beat(nowNs: number): void {
    if (this.#transport === undefined || this.#notifier === undefined) return;
    this.#pages.consider(this.incoming.number, this.#reader.bytes);
    // In shared memory the peer's is written instead.
    if (this.#transport.window === undefined) this.#pages.consider(this.outgoing.number, this.#writer.bytes);
    // Also of a few records: so that what the peer shows of its ring is true.
    if (this.#indexer.hasNews) this.#indexer.publish(this.#transport, this.#notifier.mode);
    this.#pingSentNs = nowNs;
    this.#writer.sound(recordKinds.ping, (nowNs / 1000) >>> 0);
  }

  /** Everything is over: the peer is gone, or broke the rules. The memory is freed by `free`. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.suspend();
    this.#writer.clear();
    for (const stream of this.#sockets) stream.abandon();
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

  speak(stream: Stream): void {
    this.#writer.speak(stream);
  }

  waitForRoom(stream: Stream): void {
    this.#writer.waitForRoom(stream);
  }

  wrote(sizeBytes: number): void {
    this.#writer.records++;
    this.#writer.bytes += sizeBytes;
  }

  nameFree(stream: Stream): void {
    this.#streams.delete(stream);
  }

  socketClosed(stream: Stream): void {
    this.#sockets.delete(stream);
    this.#events.onSocketClosed(stream);
  }

  // ReaderEvents

  streamOf(id: number): Stream | undefined {
    return this.#streams.get(id);
  }

  onRecord(kind: number, id: number): string {
    const { credit, value } = this.incoming;
    if (kind === recordKinds.open) return this.#onOpen(id, credit);
    if (kind === recordKinds.ping) {
      this.#writer.sound(recordKinds.pong, value);
      return '';
    }
    if (kind === recordKinds.pong) {
      this.#onPong(value);
      return '';
    }
    const stream = this.#streams.get(id);
    if (stream === undefined) {
      // Said before the peer knew that the stream was over.
      const isLate = kind === recordKinds.credit || kind === recordKinds.reset;
      return isLate ? '' : `kind ${kind} of stream ${id}, which is not open`;
    }
    if (credit >= 0) stream.onCredit(credit);
    if (kind === recordKinds.opened) stream.onOpened();
    else if (kind === recordKinds.shut) stream.onShut();
    else if (kind === recordKinds.reset) stream.onReset();
    else if (kind === recordKinds.refused) {
      // Whatever number the peer says, it could not call.
      stream.refusal = value > 0 && value < MAX_ERRNO ? value : constants.errno.ECONNREFUSED;
      stream.onReset();
    }
    return '';
  }

  #onPong(value: number): void {
    const sent = (this.#pingSentNs / 1000) >>> 0;
    // A ping of before a long recovery says nothing of what was heard since.
    this.heardNs = Math.max(this.heardNs, this.#pingSentNs);
    if (sent === value) this.roundTripUs = (monotonicNs() - this.#pingSentNs) / 1000;
  }

  #onOpen(id: number, credit: number): string {
    const { incoming } = this;
    if (!this.#streams.isFreeForPeer(id)) return `stream ${id} is opened a second time`;
    if (incoming.size !== OPEN_PAYLOAD_BYTES || credit < 0) return `stream ${id} is opened without its addresses`;
    const from = this.#endpointAt(0);
    const to = this.#endpointAt(OPEN_ENDPOINT_WORDS);
    const port = Math.max(from.port, to.port);
    if (port > 65_535) return `stream ${id} is opened to port ${port}`;
    const [client, original] = [addressOf(from), addressOf(to)];
    const call = this.#events.onCall(client, original);
    if (typeof call === 'number') {
      const about = { client, original, local: client, isOpener: false, command: '', pid: 0 };
      const refused = new Stream(id, this, new Socket(-1), about, credit, false);
      this.#streams.set(refused);
      refused.refuse(call);
      return '';
    }
    const stream = new Stream(id, this, call.socket, call.about, credit, call.isConnecting);
    this.#streams.set(stream);
    this.#sockets.add(stream);
    if (!call.isConnecting) stream.answered();
    return '';
  }

  /** Of an OPEN, so many words in. The peer can write there at any time: each word is read once. */
  #endpointAt(word: number): IpEndpoint {
    const at = this.incoming.payloadOffset / 4 + word;
    const [a, b, c, d, port] = this.#words.subarray(at, at + OPEN_ENDPOINT_WORDS);
    return { address: [a, b, c, d], port };
  }
}
