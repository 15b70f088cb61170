// The host half of the QEMU transport: one area of memory that the guest has as a PCI device, and
// doorbells over a virtio-serial port.

import { UnsupportedError } from '../../../errors.ts';
import { AGAIN, Poller, pollEvents, SharedMemory, Socket } from '../../../native/index.ts';
import type { HostMemory, HostTransport, SharedRange } from '../../protocol/index.ts';
import { CALL_AREA_BYTES } from '../../protocol/index.ts';
import { AreaAllocator } from './area-allocator.ts';
import { encodeFrame, FRAME_BYTES, FrameFinder } from './port-frames.ts';
import type { Slice } from './slices.ts';

/**
 * Plain data, for the thread that serves the guest. `QemuHost.open` adopts the first two
 * descriptors, also when it throws.
 */
export interface QemuHostSpec {
  readonly kind: 'qemu';
  /** Host end of the port: a stream socket. */
  readonly portFd: number;
  /**
   * A socket between the thread and the main thread's `QemuPort`: each end is closed when the
   * program, or the thread, has ended.
   */
  readonly lifeFd: number;
  /** The shared memory, which stays open as long as the machine. */
  readonly memoryFd: number;
  /** The part of it that the program has. */
  readonly slice: Slice;
  /** The nonce of the program's hello, which is sent back. */
  readonly nonce: number;
  readonly peer: string;
}

const PORT = 0;
const LIFE = 1;
/** Bytes that are read at a time; the rest wakes the thread again. */
const MAX_TAKEN_BYTES = 4096;
const WELCOME_AT = MAX_TAKEN_BYTES;
const DOORBELL_AT = WELCOME_AT + FRAME_BYTES;

export class QemuHost implements HostTransport {
  readonly peer: string;
  readonly callArea: HostMemory;
  readonly #port: Socket;
  readonly #life: Socket;
  readonly #poller: Poller;
  readonly #area: SharedMemory;
  readonly #allocator: AreaAllocator;
  /** Bytes to send and bytes received. */
  readonly #frames: SharedMemory;
  readonly #resources: DisposableStack;
  readonly #nonce: number;
  readonly #hellos = new FrameFinder('hello');
  readonly #ends = new FrameFinder('end');
  #isAlive = true;

  static open(spec: QemuHostSpec): QemuHost {
    using undo = new DisposableStack();
    return new QemuHost(spec, undo);
  }

  private constructor(spec: QemuHostSpec, undo: DisposableStack) {
    this.peer = spec.peer;
    this.#nonce = spec.nonce;
    this.#port = undo.use(Socket.adopt(spec.portFd));
    this.#life = undo.use(Socket.adopt(spec.lifeFd));
    this.#frames = undo.use(SharedMemory.create({ sizeBytes: DOORBELL_AT + FRAME_BYTES, name: 'qemu-frames' }));
    const frames = new Uint8Array(this.#frames.buffer);
    frames.set(encodeFrame('welcome', spec.nonce), WELCOME_AT);
    frames.set(encodeFrame('doorbell', 0), DOORBELL_AT);
    this.#area = undo.use(SharedMemory.open(Socket.duplicateOf(spec.memoryFd)));
    const { offset, sizeBytes } = spec.slice;
    this.#allocator = new AreaAllocator(offset + CALL_AREA_BYTES, sizeBytes - CALL_AREA_BYTES);
    this.callArea = this.#part(offset, CALL_AREA_BYTES, () => {});
    this.#poller = undo.use(Poller.create(2));
    this.#poller.add(this.#port.fd, pollEvents.in, PORT);
    this.#poller.add(this.#life.fd, pollEvents.in | pollEvents.peerClosed, LIFE);
    this.#port.send(this.#frames, WELCOME_AT, FRAME_BYTES);
    this.#resources = undo.move();
  }

  get fd(): number {
    return this.#poller.fd;
  }

  takeDoorbell(): boolean {
    if (!this.#isAlive) return false;
    const count = this.#poller.wait(0);
    for (let index = 0; index < count; index++) {
      if (this.#poller.token(index) === LIFE || !this.#hear()) this.#isAlive = false;
    }
    return this.#isAlive;
  }

  /**
   * When the port is full, doorbells are in it that the guest has not read: one more is not needed.
   */
  ringDoorbell(): void {
    if (!this.#isAlive) return;
    try {
      this.#port.send(this.#frames, DOORBELL_AT, FRAME_BYTES);
    } catch {
      // QEMU has ended; `takeDoorbell` tells.
    }
  }

  allocate(sizeBytes: number): HostMemory {
    const offset = this.#allocator.allocate(sizeBytes);
    return this.#part(offset, sizeBytes, () => this.#allocator.free(offset));
  }

  adopt(_range: SharedRange): HostMemory {
    throw new UnsupportedError(
      'register memory of a virtual machine: only what was allocated as a region can be shared',
    );
  }

  close(): void {
    this.#isAlive = false;
    this.#resources.dispose();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  /**
   * Any bytes ring the doorbell. False when QEMU has ended, when the program says that it ends, or
   * when another program says hello.
   */
  #hear(): boolean {
    let got = 0;
    try {
      got = this.#port.receive(this.#frames, 0, MAX_TAKEN_BYTES);
    } catch {
      // An error is taken as the end of the stream.
    }
    if (got === AGAIN) return true;
    const bytes = new Uint8Array(this.#frames.buffer, 0, got);
    const isReplaced = this.#hellos.push(bytes).some((nonce) => nonce !== this.#nonce);
    return got > 0 && !isReplaced && !this.#ends.push(bytes).includes(this.#nonce);
  }

  /** Zeroed, because another program may have had it before. */
  #part(offset: number, sizeBytes: number, onClose: () => void): HostMemory {
    new Uint8Array(this.#area.buffer, offset, sizeBytes).fill(0);
    let isOpen = true;
    const close = (): void => {
      if (isOpen) onClose();
      isOpen = false;
    };
    const range = { id: 0, offset, sizeBytes };
    return { memory: this.#area, offset, sizeBytes, range, close, [Symbol.dispose]: close };
  }
}
