// The host half of the unix transport: every region is a memfd of its own, so that devices may hand it on as a whole.

import { MillraceError, UsageError } from '../../errors.ts';
import { EventFd, SharedMemory, Socket } from '../../native/index.ts';
import type { AllocateSharedOptions, HostMemory, HostTransport, SharedRange } from '../protocol/index.ts';
import { CALL_AREA_BYTES } from '../protocol/index.ts';
import { UnixEnd } from './unix-end.ts';
import { messageKinds, receiveMessage, sendMessage } from './unix-message.ts';

/** Plain data, for the thread that serves the guest. */
export interface UnixHostSpec {
  readonly kind: 'unix';
  /** Of a connected socket that nobody else will close. */
  readonly socketFd: number;
  readonly peer: string;
  readonly pid: number;
}

export class UnixHost implements HostTransport {
  readonly peer: string;
  readonly callArea: HostMemory;
  readonly #end: UnixEnd;
  /** What is open, to be closed with everything. */
  readonly #memories = new Set<HostMemory>();
  #lastId = 0;

  /** Adopts the socket, also when it throws, and tells the guest that it is welcome. */
  static open(spec: UnixHostSpec): UnixHost {
    using undo = new DisposableStack();
    const socket = undo.use(Socket.adopt(spec.socketFd));
    const heard = undo.use(EventFd.create());
    const rung = undo.use(EventFd.create());
    const area = undo.use(SharedMemory.create({ sizeBytes: CALL_AREA_BYTES, name: 'remoting-calls' }));
    sendMessage(socket, messageKinds.welcome, 0, [area.fd, heard.fd, rung.fd]);
    const host = new UnixHost(spec.peer, new UnixEnd(socket, heard, rung), area);
    undo.move();
    return host;
  }

  private constructor(peer: string, end: UnixEnd, area: SharedMemory) {
    this.peer = peer;
    this.#end = end;
    this.callArea = this.#track(area, 0);
  }

  get fd(): number {
    return this.#end.fd;
  }

  take(): boolean {
    return this.#end.take();
  }

  ring(): void {
    this.#end.ring();
  }

  allocate(sizeBytes: number, { hugePages = false }: AllocateSharedOptions = {}): HostMemory {
    using undo = new DisposableStack();
    const memory = undo.use(SharedMemory.create({ sizeBytes, hugePages, name: 'remoting' }));
    const id = this.#nextId();
    sendMessage(this.#end.socket, messageKinds.memory, id, [memory.fd]);
    undo.move();
    return this.#track(memory, id);
  }

  adopt(range: SharedRange): HostMemory {
    const message = receiveMessage(this.#end.socket);
    using undo = new DisposableStack();
    for (const fd of message?.fds ?? []) undo.use(fd);
    const file = message?.fds[0];
    if (message?.kind !== messageKinds.offer || message.number !== range.id || file === undefined) {
      throw new MillraceError('MILLRACE_ERR_PROTOCOL', 'take memory of a guest: it has passed none, or another one');
    }
    // Of its own, because `undo` closes what came. Checked there: sealed against shrinking.
    const memory = SharedMemory.open(file.duplicate());
    if (memory.sizeBytes !== range.sizeBytes) {
      memory.close();
      throw new UsageError('register memory of a guest: only memory that is mapped as a whole can be passed on');
    }
    return this.#track(memory, range.id);
  }

  close(): void {
    for (const memory of this.#memories) memory.close();
    this.#end.close();
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
