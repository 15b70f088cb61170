// What connects a virtual machine with a backend: shared memory, a stream socket for each port, and
// one for QEMU's monitor.

import { type Fd, SharedMemory, Socket } from '../../../native/index.ts';
import { portName, sliceOf } from './slices.ts';

/** The backend's ends. */
export interface QemuEnds {
  readonly memory: SharedMemory;
  readonly ports: readonly Socket[];
  readonly monitor: Socket;
}

/** The descriptors that QEMU inherits; fits the `sharing` of a lab guest. */
interface QemuSharing {
  readonly memory: { readonly fd: number; readonly sizeBytes: number };
  readonly ports: readonly { readonly name: string; readonly fd: number }[];
  readonly monitorFd: number;
}

interface QemuWiringOptions {
  /** A power of two. Divided among the ports. Default: 64 MiB. */
  readonly sizeBytes?: number;
  /** Programs, or threads, of the guest that are served at a time. Default: 4. */
  readonly ports?: number;
}

const DEFAULT_SIZE_BYTES = 64 * 1024 * 1024;
const DEFAULT_PORTS = 4;

/**
 * Owns QEMU's ends. The backend's ends go to a `QemuMachine`, or are passed to a backend and
 * closed.
 */
export class QemuWiring implements Disposable {
  readonly ends: QemuEnds;
  readonly sharing: QemuSharing;
  readonly #qemuEnds: readonly Fd[];

  constructor(options: QemuWiringOptions = {}) {
    const { sizeBytes = DEFAULT_SIZE_BYTES, ports: count = DEFAULT_PORTS } = options;
    // Throws when they do not fit.
    sliceOf(sizeBytes, 0, count);
    using undo = new DisposableStack();
    const memory = undo.use(SharedMemory.create({ sizeBytes, name: 'qemu-guest' }));
    const pairs = Array.from({ length: count + 1 }, () => {
      const pair = Socket.pair();
      for (const end of pair) undo.use(end);
      return pair;
    });
    const memoryEnd = undo.use(memory.duplicateFd());
    undo.move();
    const [[monitor, monitorEnd], ...ports] = pairs;
    this.#qemuEnds = [memoryEnd, ...pairs.map(([, end]) => end)];
    this.ends = { memory, ports: ports.map(([end]) => end), monitor };
    this.sharing = {
      memory: { fd: memoryEnd.fd, sizeBytes },
      ports: ports.map(([, end], index) => ({ name: portName(index, count), fd: end.fd })),
      monitorFd: monitorEnd.fd,
    };
  }

  /**
   * Call it once QEMU runs and has copies of its ends: then the sockets tell when QEMU ends.
   * Closing twice is harmless.
   */
  close(): void {
    for (const end of this.#qemuEnds) end.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

export function closeEnds({ memory, ports, monitor }: QemuEnds): void {
  for (const end of [memory, monitor, ...ports]) end.close();
}
