// A virtual machine at the backend: its ports, and its monitor, which tells which of them programs
// have opened.

import type { QemuHostSpec } from './host-transport.ts';
import { QemuMonitor } from './monitor.ts';
import { QemuPort } from './port.ts';
import { sliceOf } from './slices.ts';
import { closeEnds, type QemuEnds } from './wiring.ts';

interface QemuMachineOptions {
  /** For people: the backend's lists show it. */
  readonly name: string;
  /** The machine takes them over, also when it throws. */
  readonly ends: QemuEnds;
  /**
   * Serves a program in a thread of its own, which adopts the descriptors of the spec:
   * `Backend.serve`.
   */
  readonly serve: (spec: QemuHostSpec) => void;
}

/** QEMU's id of a port, which the lab gives it: `port0`. */
const portId = /^port(\d{1,2})$/;

export class QemuMachine implements AsyncDisposable {
  readonly name: string;
  /**
   * Resolves when it is closed, or QEMU has ended, and the threads of its programs have ended as
   * well.
   */
  readonly closed: Promise<void>;
  readonly #ports: readonly QemuPort[];
  readonly #monitor: QemuMonitor;

  constructor({ name, ends, serve }: QemuMachineOptions) {
    using undo = new DisposableStack();
    undo.defer(() => closeEnds(ends));
    const { memory, monitor } = ends;
    const count = ends.ports.length;
    const slices = ends.ports.map((_, index) => sliceOf(memory.sizeBytes, index, count));
    this.name = name;
    this.#ports = ends.ports.map((socket, index) => {
      const peer = `port ${index} of guest ${name}`;
      const port = new QemuPort({ socket, memoryFd: memory.fd, slice: slices[index], peer, serve });
      undo.defer(() => port.close());
      return port;
    });
    this.#monitor = undo.use(
      new QemuMonitor(monitor, {
        onChange: (id, isOpen) => {
          if (!isOpen) this.#ports[Number(portId.exec(id)?.[1])]?.programEnded();
        },
        onEnd: () => void this.close(),
      }),
    );
    this.closed = Promise.all(this.#ports.map((port) => port.closed)).then(() => memory.close());
    undo.move();
  }

  /** How many programs are served. */
  get programs(): number {
    return this.#ports.filter((port) => port.isServing).length;
  }

  /** Ends the threads of its programs. Resolves when that is done. Closing twice is harmless. */
  close(): Promise<void> {
    this.#monitor.close();
    for (const port of this.#ports) port.close();
    return this.closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
