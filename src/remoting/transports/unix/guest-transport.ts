// The guest half of the unix transport: connects to a backend on this host and maps what it is
// passed.

import { MillraceError, SystemError } from '../../../errors.ts';
import { EventFd, monotonicNs, Poller, pollEvents, SharedMemory, Socket } from '../../../native/index.ts';
import type { GuestTransport, SharedRange } from '../../protocol/index.ts';
import { CALL_AREA_BYTES, PROTOCOL_VERSION } from '../../protocol/index.ts';
import { UnixDoorbells } from './doorbells.ts';
import { messageKinds, receiveMessage, sendMessage, type UnixMessage } from './message.ts';

/**
 * A backend that runs answers within the time it takes to start a thread, and its longest delay.
 */
const WELCOME_MS = 30_000;

export class UnixGuest implements GuestTransport {
  readonly callArea: SharedMemory;
  readonly #doorbells: UnixDoorbells;
  #lastOffer = 0;

  /** Blocks until the backend has answered. */
  static connect(socketPath: string): UnixGuest {
    using undo = new DisposableStack();
    const attempt = `connect to the remoting backend at ${socketPath}`;
    const socket = undo.use(connectToBackend(socketPath));
    sendMessage(socket, messageKinds.request, PROTOCOL_VERSION, []);
    const message = awaitMessage(socket, attempt);
    for (const fd of message.fds) undo.use(fd);
    if (message.kind === messageKinds.refusal) {
      throw new MillraceError('MILLRACE_ERR_PERMISSION', `${attempt}: it refused: ${message.text}`);
    }
    const [area, toBackend, toGuest] = message.fds;
    if (message.kind !== messageKinds.welcome || toGuest === undefined) {
      throw new MillraceError('MILLRACE_ERR_PROTOCOL', `${attempt}: the process that answered is no backend`);
    }
    const callArea = undo.use(SharedMemory.open(area.duplicate(), { sizeBytes: CALL_AREA_BYTES }));
    const peer = undo.use(EventFd.duplicateOf(toBackend.fd));
    const own = undo.use(EventFd.duplicateOf(toGuest.fd));
    const guest = new UnixGuest(callArea, new UnixDoorbells(socket, own, peer));
    undo.move();
    for (const fd of message.fds) fd.close();
    return guest;
  }

  private constructor(callArea: SharedMemory, doorbells: UnixDoorbells) {
    this.callArea = callArea;
    this.#doorbells = doorbells;
  }

  get fd(): number {
    return this.#doorbells.fd;
  }

  takeDoorbell(): boolean {
    return this.#doorbells.takeDoorbell();
  }

  ringDoorbell(): void {
    this.#doorbells.ringDoorbell();
  }

  /**
   * The backend passes the memfd before it replies with the range. A memfd of a call that failed is
   * skipped.
   */
  map(range: SharedRange): SharedMemory {
    for (let message = receiveMessage(this.#doorbells.socket); message !== undefined; ) {
      using undo = new DisposableStack();
      for (const fd of message.fds) undo.use(fd);
      const file = message.fds[0];
      if (message.kind === messageKinds.memory && message.number === range.id && file !== undefined) {
        return SharedMemory.open(file.duplicate(), { sizeBytes: range.sizeBytes });
      }
      message = receiveMessage(this.#doorbells.socket);
    }
    throw new MillraceError('MILLRACE_ERR_PROTOCOL', `map memory ${range.id} of the backend: it was not passed`);
  }

  offer(memory: SharedMemory): SharedRange {
    this.#lastOffer = (this.#lastOffer + 1) >>> 0;
    sendMessage(this.#doorbells.socket, messageKinds.offer, this.#lastOffer, [memory.fd]);
    return { id: this.#lastOffer, offset: 0, sizeBytes: memory.sizeBytes };
  }

  close(): void {
    this.callArea.close();
    this.#doorbells.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

export function connectToBackend(socketPath: string): Socket {
  using undo = new DisposableStack();
  const socket = undo.use(Socket.messages());
  try {
    socket.connect({ family: 'unix', path: socketPath });
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    const attempt = `connect to the remoting backend at ${socketPath}`;
    if (error.code === 'EACCES') {
      const advice = 'permission denied; allow this user with: millrace backend --uid';
      throw new MillraceError('MILLRACE_ERR_PERMISSION', `${attempt}: ${advice}`, { cause: error });
    }
    if (error.code !== 'ENOENT' && error.code !== 'ECONNREFUSED') throw error;
    const advice = "nobody listens there; start one with 'millrace backend'";
    throw new MillraceError('MILLRACE_ERR_NOT_RUNNING', `${attempt}: ${advice}`, { cause: error });
  }
  undo.move();
  return socket;
}

/** Waits for the backend's answer. */
export function awaitMessage(socket: Socket, attempt: string): UnixMessage {
  using poller = Poller.create(1);
  poller.add(socket.fd, pollEvents.in, 0);
  const endNs = monotonicNs() + WELCOME_MS * 1e6;
  for (;;) {
    const message = receiveMessage(socket);
    if (message !== undefined) return message;
    const leftNs = endNs - monotonicNs();
    if (leftNs <= 0)
      throw new MillraceError('MILLRACE_ERR_NOT_RUNNING', `${attempt}: it has not answered within ${WELCOME_MS} ms`);
    poller.wait(leftNs);
  }
}
