// One conversation with a program that has the library: reads and checks its messages, sends and
// holds back ours, and counts them on its desk.

import { readFileSync } from 'node:fs';
import { ProtocolError } from '../errors.ts';
import { AGAIN, Fd, fetchAdd, MemoryFile, pollEvents, SharedMemory, type Socket } from '../native/index.ts';
import type { Arena, Party } from './arenas.ts';
import type { Connection } from './connection.ts';
import {
  DESK_BYTES,
  DIRECT_VERSION,
  decodeMessage,
  encodeMessage,
  MESSAGE_BYTES,
  type Message,
  messageKinds,
  WITH_LANE,
  withdrawFlags,
} from './layout.ts';

/** Others have their turn after so many messages. */
const MESSAGES_PER_TURN = 64;
/** A program that does not read so many of ours is not read from either. */
const MAX_UNREAD = 256;

/** How a program says that it has left a connection. */
export interface Withdrawal {
  /** The lane sends what its ring still has. */
  readonly leavesRest?: boolean;
  /** By its own account, its lane left it because it moves bulk. */
  readonly wasBulk?: boolean;
}

interface ProgramHandlers {
  /** The descriptors are the handler's to close. */
  onOffer(program: Program, connection: number, fds: readonly Fd[]): void;
  onWithdraw(program: Program, connection: number, how: Withdrawal): void;
  /** Its HELLO was good. */
  onWelcome(program: Program): void;
  /** By its own account it listens at the socket with that inode. */
  onListens(program: Program, inode: string): void;
  /** `events` or `isBroken` may have changed. */
  onUnsettled(program: Program): void;
}

interface Unsent {
  readonly bytes: Uint8Array;
  readonly fds: readonly Fd[];
}

export class Program implements Disposable {
  /** No other program of this daemon ever has it. */
  readonly id: number;
  /** Those that it offered and did not withdraw yet, but for those that were declined. */
  readonly connections = new Map<number, Connection>();
  /** The user that runs it. */
  readonly uid: number;
  /** 0 when it cannot be seen from here. */
  readonly pid: number;
  readonly #socket: Socket;
  readonly #handlers: ProgramHandlers;
  readonly #deskFile: MemoryFile;
  readonly #desk: SharedMemory;
  readonly #news: Uint32Array;
  readonly #arenas = new Set<number>();
  readonly #unsent: Unsent[] = [];
  // One byte more, so that a longer message is seen to be one.
  readonly #buffer = new Uint8Array(MESSAGE_BYTES + 1);
  #isWelcome = false;
  #isBroken = false;
  #command: string | undefined;

  /** Takes the socket over, also when it throws. */
  constructor(id: number, socket: Socket, handlers: ProgramHandlers) {
    using undo = new DisposableStack();
    this.id = id;
    this.#socket = undo.use(socket);
    const { uid, pid } = socket.peerCredentials;
    this.uid = uid;
    this.pid = pid;
    this.#handlers = handlers;
    this.#deskFile = undo.use(MemoryFile.create(DESK_BYTES, 'direct desk'));
    this.#desk = undo.use(SharedMemory.open(this.#deskFile.duplicate(), { populate: true }));
    this.#news = new Uint32Array(this.#desk.buffer);
    // Mapped here already, so only the daemon can write it.
    this.#deskFile.seal('writes');
    undo.move();
  }

  /** As in /proc/PID/comm when it was asked for first; '' when it cannot be seen. */
  get command(): string {
    this.#command ??= commandOf(this.pid);
    return this.#command;
  }

  get fd(): number {
    return this.#socket.fd;
  }

  /** It could not be sent to: end it. */
  get isBroken(): boolean {
    return this.#isBroken;
  }

  /** What to wait for now, as bits of epoll. */
  get events(): number {
    const mayRead = this.#unsent.length < MAX_UNREAD;
    return (mayRead ? pollEvents.in : 0) | (this.#unsent.length > 0 ? pollEvents.out : 0);
  }

  /** False at its end. Throws where it breaks the protocol, and where the system fails. */
  receive(): boolean {
    for (let count = 0; count < MESSAGES_PER_TURN && this.#unsent.length < MAX_UNREAD; count++) {
      const received = this.#socket.receiveFds(this.#buffer);
      if (received === undefined) return true;
      const { bytes, fds } = received;
      using undo = new DisposableStack();
      undo.defer(() => Fd.closeAside(fds));
      if (bytes === 0 && fds.length === 0) return false;
      const message = decodeMessage(this.#buffer.subarray(0, bytes));
      if (message === null) throw new ProtocolError(`a message has ${MESSAGE_BYTES} bytes, not ${bytes}`);
      if (message.kind === messageKinds.offer && this.#isWelcome) undo.move();
      this.#hear(message, fds);
    }
    return true;
  }

  /** Sends what waits; as much as the program takes. */
  flush(): void {
    for (let next = this.#unsent[0]; next !== undefined && !this.#isBroken; next = this.#unsent[0]) {
      const fds = next.fds.map(({ fd }) => fd);
      if (!this.#trySend(next.bytes, fds)) return;
      for (const fd of next.fds) fd.close();
      this.#unsent.shift();
      this.#handlers.onUnsettled(this);
    }
  }

  /** `token`: of a connection whose other end is on another host. */
  promote(connection: number, arena: Arena, slot: number, party: Party, token = 0n): void {
    if (!this.#arenas.has(arena.id)) {
      this.#arenas.add(arena.id);
      const flags = arena.isWithLane ? BigInt(WITH_LANE) : 0n;
      const message = { kind: messageKinds.arena, arena: arena.id, party, value: arena.ringBytes, token: flags };
      this.#send(message, arena.fdsFor(party));
    }
    this.#send({ kind: messageKinds.promote, connection, arena: arena.id, slot, party, token });
  }

  decline(connection: number): void {
    this.#send({ kind: messageKinds.decline, connection });
  }

  demote(connection: number, arena: Arena, slot: number, party: Party): void {
    this.#send({ kind: messageKinds.demote, connection, arena: arena.id, slot, party });
  }

  /**
   * Idle rings that it writes there give their pages back. A program that does not listen is not
   * told.
   */
  trim(arena: Arena): void {
    if (this.#arenas.has(arena.id) && this.#unsent.length === 0)
      this.#send({ kind: messageKinds.trim, arena: arena.id });
  }

  /** Its number does not come again. */
  forgetArena(id: number): void {
    if (this.#arenas.delete(id)) this.#send({ kind: messageKinds.forget, arena: id });
  }

  close(): void {
    this.#isBroken = true;
    for (const { fds } of this.#unsent.splice(0)) for (const fd of fds) fd.close();
    // Descriptors may have come that were not received.
    Fd.closeAside([this.#socket]);
    this.#deskFile.close();
    this.#desk.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #hear({ kind, connection, value, token }: Required<Message>, fds: readonly Fd[]): void {
    if (kind === messageKinds.hello && !this.#isWelcome && fds.length === 0) {
      if (value !== DIRECT_VERSION) throw new ProtocolError(`it has version ${value} of the protocol`);
      this.#isWelcome = true;
      this.#handlers.onWelcome(this);
      this.#send({ kind: messageKinds.welcome, value: DIRECT_VERSION }, [this.#deskFile.fd]);
    } else if (kind === messageKinds.offer && this.#isWelcome) {
      this.#handlers.onOffer(this, connection, fds);
    } else if (kind === messageKinds.listens && this.#isWelcome && fds.length === 0) {
      this.#handlers.onListens(this, String(value));
    } else if (kind === messageKinds.withdraw && this.#isWelcome && fds.length === 0) {
      const leavesRest = (token & withdrawFlags.leavesRest) !== 0n;
      const wasBulk = (token & withdrawFlags.wasBulk) !== 0n;
      this.#handlers.onWithdraw(this, connection, { leavesRest, wasBulk });
    } else {
      throw new ProtocolError(`a message of kind ${kind} with ${fds.length} descriptors is not expected now`);
    }
  }

  #send(message: Message, fds: readonly number[] = []): void {
    if (this.#isBroken) return;
    const bytes = encodeMessage(message);
    if (this.#unsent.length === 0 && this.#trySend(bytes, fds)) return;
    try {
      // Of its own, since an arena may end before it is sent.
      this.#unsent.push({ bytes, fds: fds.map((fd) => Fd.duplicateOf(fd)) });
    } catch {
      this.#isBroken = true;
    }
    this.#handlers.onUnsettled(this);
  }

  #trySend(bytes: Uint8Array, fds: readonly number[]): boolean {
    try {
      if (this.#socket.sendFds(bytes, fds) === AGAIN) return false;
      fetchAdd(this.#news, 0, 1);
    } catch {
      // It has ended, or the system refuses: it is hung up on at the end of this turn.
      this.#isBroken = true;
      this.#handlers.onUnsettled(this);
    }
    return true;
  }
}

function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/comm`, 'utf8').replace(/\n$/, '');
  } catch {
    // It has ended, or is in a process namespace that is not seen from here.
    return '';
  }
}
