// A TCP connection as the byte stream of a link: small frames are sent together, and what has come
// is received together, so that a frame costs less than a system call.

import { AGAIN, copyMemory, pollEvents, type RangeList, type SharedMemory, type Socket } from '../../native/index.ts';
import type { Pieces } from './pieces.ts';
import type { ByteStream } from './stream.ts';

/** Each buffer starts over when it is empty, so that little traffic touches few pages. */
const BUFFER_BYTES = 32 * 1024;
/** What a stream needs of the memory that it is given. */
export const STREAM_BYTES = 2 * BUFFER_BYTES;
/** Frames up to here are copied to go out together; to send a longer one costs more than a call. */
const SMALL_BYTES = 4096;
const ENDING = pollEvents.peerClosed | pollEvents.hangup | pollEvents.error;

export const streamEvents = pollEvents.in | pollEvents.out | pollEvents.peerClosed | pollEvents.edge;

export class TcpStream implements ByteStream {
  readonly #socket: Socket;
  /** Of the wire: filled for one call, and not needed after it. */
  readonly #ranges: RangeList;
  readonly #onClose: () => void;
  readonly #memory: SharedMemory;
  /** Where the two buffers are. */
  readonly #inAt: number;
  readonly #outAt: number;
  #inStart = 0;
  #inEnd = 0;
  #outStart = 0;
  #outEnd = 0;
  /** The socket may have bytes that no event will tell of. */
  #isReadable = true;
  /** The peer has closed, or the connection is broken: the socket is read to its end. */
  #isEnding = false;

  /** `offset`: where in the memory there are STREAM_BYTES for it. */
  constructor(socket: Socket, ranges: RangeList, memory: SharedMemory, offset: number, onClose: () => void) {
    this.#socket = socket;
    this.#ranges = ranges;
    this.#memory = memory;
    this.#inAt = offset;
    this.#outAt = offset + BUFFER_BYTES;
    this.#onClose = onClose;
  }

  /** The socket has edge-triggered events. */
  onEvents(events: number): void {
    if ((events & (pollEvents.in | ENDING)) !== 0) this.#isReadable = true;
    if ((events & ENDING) !== 0) this.#isEnding = true;
  }

  /** Events tell, and `pump` is called only then. */
  get mayReceive(): boolean {
    return false;
  }

  send(pieces: Pieces, skip: number): number {
    const length = pieces.totalBytes - skip;
    if (length <= SMALL_BYTES) {
      if (BUFFER_BYTES - this.#outEnd < length) this.flush();
      if (BUFFER_BYTES - this.#outEnd < length) return AGAIN;
      this.#store(pieces, skip);
      return length;
    }
    const buffered = this.#outEnd - this.#outStart;
    let rows = 0;
    if (buffered > 0) this.#ranges.set(rows++, this.#memory, this.#outAt + this.#outStart, buffered);
    let passed = 0;
    for (let piece = 0; piece < pieces.count && rows < this.#ranges.capacity; piece++) {
      const pieceBytes = pieces.lengths[piece];
      const from = Math.max(0, skip - passed);
      passed += pieceBytes;
      if (from >= pieceBytes) continue;
      this.#ranges.set(rows++, pieces.memories[piece], pieces.offsets[piece] + from, pieceBytes - from);
    }
    const sent = this.#socket.sendRanges(this.#ranges, rows);
    if (sent === AGAIN) return AGAIN;
    this.#left(Math.min(sent, buffered));
    return sent > buffered ? sent - buffered : AGAIN;
  }

  #store(pieces: Pieces, skip: number): void {
    let passed = 0;
    for (let piece = 0; piece < pieces.count; piece++) {
      const pieceBytes = pieces.lengths[piece];
      const from = Math.max(0, skip - passed);
      passed += pieceBytes;
      if (from >= pieceBytes) continue;
      const { memories, offsets } = pieces;
      copyMemory(this.#memory, this.#outAt + this.#outEnd, memories[piece], offsets[piece] + from, pieceBytes - from);
      this.#outEnd += pieceBytes - from;
    }
  }

  /** Where the socket takes no more, its next event calls this again. */
  flush(): void {
    while (this.#outEnd > this.#outStart) {
      const sent = this.#socket.send(this.#memory, this.#outAt + this.#outStart, this.#outEnd - this.#outStart);
      if (sent === AGAIN) return;
      this.#left(sent);
    }
  }

  /** So many bytes of the buffer were sent. */
  #left(bytes: number): void {
    this.#outStart += bytes;
    if (this.#outStart < this.#outEnd) return;
    this.#outStart = 0;
    this.#outEnd = 0;
  }

  receive(memory: SharedMemory, offset: number, length: number): number {
    if (this.#inStart === this.#inEnd) {
      // What is longer than the buffer goes to its place by one copy less.
      const isLong = length >= BUFFER_BYTES;
      const got = isLong ? this.#take(memory, offset, length) : this.#take(this.#memory, this.#inAt, BUFFER_BYTES);
      if (isLong || got <= 0) return got;
      this.#inStart = 0;
      this.#inEnd = got;
    }
    const bytes = Math.min(length, this.#inEnd - this.#inStart);
    copyMemory(memory, offset, this.#memory, this.#inAt + this.#inStart, bytes);
    this.#inStart += bytes;
    return bytes;
  }

  #take(memory: SharedMemory, offset: number, length: number): number {
    if (!this.#isReadable) return AGAIN;
    const got = this.#socket.receive(memory, offset, length);
    // Less than asked for was all there was, and an event will tell of more. But the end may have
    // been told of by the same event as the bytes before it.
    if (got < length && !this.#isEnding) this.#isReadable = false;
    return got;
  }

  get waitingBytes(): number {
    const buffered = this.#inEnd - this.#inStart;
    if (buffered > 0) return buffered;
    return this.#isReadable ? this.#socket.receivableBytes : 0;
  }

  close(): void {
    this.#onClose();
    this.#socket.close();
  }
}
