// The host end of one port of a virtual machine: each program that opens it is served by a thread,
// one after the other.

import { AGAIN, FdWatch, SharedMemory, Socket } from '../../../native/index.ts';
import type { QemuHostSpec } from './host-transport.ts';
import { encodeFrame, FRAME_BYTES, FrameFinder } from './port-frames.ts';
import type { Slice } from './slices.ts';

interface QemuPortOptions {
  /** The port takes it over. */
  readonly socket: Socket;
  /** Stays open as long as the machine. */
  readonly memoryFd: number;
  readonly slice: Slice;
  readonly peer: string;
  /** Serves a program in a thread of its own, which adopts the descriptors of the spec. */
  readonly serve: (spec: QemuHostSpec) => void;
}

const READ_BYTES = 4096;

export class QemuPort {
  /** Resolves when it is closed and its last thread has ended. */
  readonly closed: Promise<void>;
  readonly #options: QemuPortOptions;
  readonly #scratch = SharedMemory.create({ sizeBytes: READ_BYTES + FRAME_BYTES, name: 'qemu-port' });
  readonly #onClosed: () => void;
  #hellos = new FrameFinder('hello');
  /** While no program is served. */
  #watch: FdWatch | undefined;
  /** While a program is served: the other end belongs to the thread, and is closed with it. */
  #life: Socket | undefined;
  #lifeWatch: FdWatch | undefined;
  #nonce = 0;
  #isClosed = false;

  constructor(options: QemuPortOptions) {
    this.#options = options;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.closed = promise;
    this.#onClosed = resolve;
    this.#listen();
  }

  get isServing(): boolean {
    return this.#life !== undefined;
  }

  /**
   * Ends the thread of a program that has ended. The slice is not given to another program before
   * the thread has ended.
   */
  programEnded(): void {
    try {
      this.#life?.shutdownSend();
    } catch {
      // The thread has ended already; `#threadEnded` follows.
    }
  }

  /** Ends the thread of its program. Closing twice is harmless. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#watch?.close();
    if (this.#life === undefined) this.#free();
    else this.programEnded();
  }

  /** Waits for a program to say hello. */
  #listen(): void {
    this.#hellos = new FrameFinder('hello');
    this.#watch = FdWatch.start(this.#options.socket.fd, () => this.#hear());
    this.#watch.hold(true);
  }

  #hear(): void {
    let got = 0;
    try {
      got = this.#options.socket.receive(this.#scratch, 0, READ_BYTES);
    } catch {
      // An error is taken as the end of the stream: QEMU has ended.
    }
    if (got === AGAIN) return;
    if (got === 0) {
      this.close();
      return;
    }
    // The last hello counts: the programs that sent the others have ended.
    const nonce = this.#hellos.push(new Uint8Array(this.#scratch.buffer, 0, got)).at(-1);
    if (nonce !== undefined) this.#serve(nonce);
  }

  #serve(nonce: number): void {
    const { socket, memoryFd, slice, peer, serve } = this.#options;
    // From here on the thread reads the port.
    this.#watch?.close();
    this.#watch = undefined;
    const [mine, theirs] = Socket.pair();
    this.#life = mine;
    this.#nonce = nonce;
    this.#lifeWatch = FdWatch.start(mine.fd, () => this.#threadEnded());
    this.#lifeWatch.hold(true);
    const portFd = socket.duplicate().release();
    serve({ kind: 'qemu', portFd, lifeFd: theirs.release(), memoryFd, slice, nonce, peer });
  }

  /** Tells the program in the guest, if it is still there. */
  #threadEnded(): void {
    this.#lifeWatch?.close();
    this.#life?.close();
    this.#life = undefined;
    if (this.#isClosed) {
      this.#free();
      return;
    }
    new Uint8Array(this.#scratch.buffer).set(encodeFrame('end', this.#nonce), READ_BYTES);
    try {
      this.#options.socket.send(this.#scratch, READ_BYTES, FRAME_BYTES);
    } catch {
      // QEMU has ended; the next read tells.
    }
    this.#listen();
  }

  #free(): void {
    this.#options.socket.close();
    this.#scratch.close();
    this.#onClosed();
  }
}
