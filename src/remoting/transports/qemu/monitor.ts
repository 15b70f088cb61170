// The QMP monitor of QEMU: tells when a program in the guest has opened a port, or closed it, also
// by ending.

import { AGAIN, FdWatch, SharedMemory, type Socket } from '../../../native/index.ts';

const READ_BYTES = 4096;
/** The process that registered the machine is not trusted, so the length of a line is bounded. */
const MAX_LINE_BYTES = 65_536;

interface PortWatcher {
  readonly onChange: (portId: string, isOpen: boolean) => void;
  readonly onEnd: () => void;
}

export class QemuMonitor implements Disposable {
  readonly #socket: Socket;
  readonly #watcher: PortWatcher;
  readonly #scratch = SharedMemory.create({ sizeBytes: READ_BYTES, name: 'qmp' });
  readonly #watch: FdWatch;
  #rest = '';
  #isClosed = false;

  /** Takes the socket over. */
  constructor(socket: Socket, watcher: PortWatcher) {
    this.#socket = socket;
    this.#watcher = watcher;
    this.#watch = FdWatch.start(socket.fd, () => this.#hear());
    // QEMU sends no events before this command.
    const hello = Buffer.from('{"execute":"qmp_capabilities"}\n');
    new Uint8Array(this.#scratch.buffer).set(hello);
    socket.send(this.#scratch, 0, hello.length);
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#watch.close();
    this.#socket.close();
    this.#scratch.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #hear(): void {
    let got = 0;
    try {
      got = this.#socket.receive(this.#scratch, 0, READ_BYTES);
    } catch {
      // An error is taken as the end of the stream.
    }
    if (got === AGAIN) return;
    this.#rest += Buffer.from(this.#scratch.buffer, 0, got).toString('latin1');
    for (let end = this.#rest.indexOf('\n'); end >= 0; end = this.#rest.indexOf('\n')) {
      const change = changeOf(this.#rest.slice(0, end));
      this.#rest = this.#rest.slice(end + 1);
      if (change !== undefined) this.#watcher.onChange(...change);
    }
    if (got > 0 && this.#rest.length <= MAX_LINE_BYTES) return;
    this.close();
    this.#watcher.onEnd();
  }
}

/** {"event":"VSERPORT_CHANGE","data":{"open":true,"id":"port0"},…} */
function changeOf(line: string): [string, boolean] | undefined {
  try {
    const { event, data } = JSON.parse(line) as { event?: unknown; data?: { id?: unknown; open?: unknown } };
    if (event !== 'VSERPORT_CHANGE' || typeof data?.id !== 'string') return undefined;
    return [data.id, data.open === true];
  } catch {
    return undefined;
  }
}
