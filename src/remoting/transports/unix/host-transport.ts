// The host half of the unix transport: every region is a memfd of its own, which devices may hand
// on as a whole.

import { MillraceError, UsageError } from '../../../errors.ts';
import { EventFd, SharedMemory, Socket } from '../../../native/index.ts';
import type { AllocateSharedOptions, HostMemory, HostTransport, SharedRange } from '../../protocol/index.ts';
import { CALL_AREA_BYTES } from '../../protocol/index.ts';
import { UnixDoorbells } from './doorbells.ts';
import { messageKinds, receiveMessage, sendMessage } from './message.ts';

/** Plain data, for the thread that serves the guest. */
export interface UnixHostSpec {
  readonly kind: 'unix';
  /** A connected socket that nobody else closes. */
  readonly socketFd: number;
  readonly peer: string;
  readonly pid: number;
}

export class UnixHost implements HostTransport {
  readonly peer: string;
  readonly callArea: HostMemory;
  readonly #doorbells: UnixDoorbells;
  /** All memories that are open; they are closed with the transport. */
  readonly #memories = new Set<HostMemory>();
  #lastId = 0;

  /** Adopts the socket, also when it throws, and tells the guest that it is served. */
  static open(spec: UnixHostSpec): UnixHost {
    using undo = new DisposableStack();
    const socket = undo.use(Socket.adopt(spec.socketFd));
    const own = undo.use(EventFd.create());
    const peer = undo.use(EventFd.create());
    const area = undo.use(SharedMemory.create({ sizeBytes: CALL_AREA_BYTES, name: 'remoting-calls' }));
    sendMessage(socket, messageKinds.welcome, 0, [area.fd, own.fd, peer.fd]);
    const host = new UnixHost(spec.peer, new UnixDoorbells(socket, own, peer), area);
    undo.move();
    return host;
  }

  private constructor(peer: string, doorbells: UnixDoorbells, area: SharedMemory) {
    this.peer = peer;
    this.#doorbells = doorbells;
    this.callArea = this.#track(area, 0);
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

  allocate(sizeBytes: number, { hugePages = false }: AllocateSharedOptions = {}): HostMemory {
    using undo = new DisposableStack();
    const memory = undo.use(SharedMemory.create({ sizeBytes, hugePages, name: 'remoting' }));
    const id = this.#nextId();
    sendMessage(this.#doorbells.socket, messageKinds.memory, id, [memory.fd]);
    undo.move();
    return this.#track(memory, id);
  }

  adopt(range: SharedRange): HostMemory {
    const message = receiveMessage(this.#doorbells.socket);
    using undo = new DisposableStack();
    for (const fd of message?.fds ?? []) undo.use(fd);
    const file = message?.fds[0];
    if (message?.kind !== messageKinds.offer || message.number !== range.id || file === undefined) {
      throw new MillraceError(
        'MILLRACE_ERR_PROTOCOL',
        'adopt memory of a guest: the guest has passed no descriptor, or that of another range',
      );
    }
    // A duplicate, because `undo` closes the message's descriptors. `open` checks that it is sealed
    // against shrinking.
    const memory = SharedMemory.open(file.duplicate());
    if (memory.sizeBytes !== range.sizeBytes) {
      memory.close();
      throw new UsageError('register memory of a guest: only memory that is mapped as a whole can be passed on');
    }
    return this.#track(memory, range.id);
  }

  close(): void {
    for (const memory of this.#memories) memory.close();
    this.#doorbells.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #track(memory: SharedMemory, id: number): HostMemory {
    const { sizeBytes } = memory;
    const close = (): void => {
      this.#memories.delete(tracked);
      memory.close();
    };
    const range = { id, offset: 0, sizeBytes };
    const tracked: HostMemory = { memory, offset: 0, sizeBytes, range, close, [Symbol.dispose]: close };
    this.#memories.add(tracked);
    return tracked;
  }

  #nextId(): number {
    this.#lastId = (this.#lastId + 1) >>> 0;
    return this.#lastId;
  }
}
