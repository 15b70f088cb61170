// Plays the library in a test: one conversation with the daemon, whose messages are awaited.

import {
  DIRECT_VERSION,
  decodeMessage,
  encodeMessage,
  type Message,
  messageKinds,
} from '../../../src/direct/layout.ts';
import { type Fd, FdWatch, loadAcquire, SharedMemory, Socket } from '../../../src/native/index.ts';

export interface Heard extends Required<Message> {
  readonly fds: readonly Fd[];
}

/** What the daemon's hang-up looks like. */
export const hangUp = 'hang-up';

export class Conversation implements Disposable {
  readonly #socket: Socket;
  #watch: FdWatch;
  readonly #heard: (Heard | typeof hangUp)[] = [];
  readonly #buffer = new Uint8Array(64);
  #onHeard: (() => void) | undefined;
  #desk: SharedMemory | undefined;

  static connect(path: string): Conversation {
    const socket = Socket.messages();
    socket.connect({ family: 'unix', path });
    return new Conversation(socket);
  }

  /** After HELLO and WELCOME. */
  static async begin(path: string): Promise<Conversation> {
    const conversation = Conversation.connect(path);
    conversation.send({ kind: messageKinds.hello, value: DIRECT_VERSION });
    const { fds } = await conversation.expect(messageKinds.welcome);
    const [desk] = fds;
    if (desk === undefined) throw new Error('WELCOME came without the desk');
    conversation.#desk = SharedMemory.open(desk, { readOnly: true });
    return conversation;
  }

  private constructor(socket: Socket) {
    this.#socket = socket;
    this.#watch = this.#start();
  }

  /** How many messages the daemon says it has sent. */
  get news(): number {
    return this.#desk === undefined ? 0 : loadAcquire(new Uint32Array(this.#desk.buffer), 0);
  }

  get desk(): SharedMemory {
    if (this.#desk === undefined) throw new Error('there is no desk yet');
    return this.#desk;
  }

  send(message: Message, fds: readonly number[] = []): void {
    if (!this.trySend(message, fds)) throw new Error('the daemon does not read');
  }

  /** False when the daemon has not read what was sent before. */
  trySend(message: Message, fds: readonly number[] = []): boolean {
    return this.sendBytes(encodeMessage(message), fds);
  }

  sendBytes(bytes: Uint8Array, fds: readonly number[] = []): boolean {
    return this.#socket.sendFds(bytes, fds) >= 0;
  }

  /** Reads nothing until it resumes. */
  pause(): void {
    this.#watch.close();
  }

  resume(): void {
    this.#watch = this.#start();
  }

  offer(connection: number, fd: number): void {
    this.send({ kind: messageKinds.offer, connection }, [fd]);
  }

  withdraw(connection: number): void {
    this.send({ kind: messageKinds.withdraw, connection });
  }

  async next(): Promise<Heard | typeof hangUp> {
    while (this.#heard.length === 0) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#onHeard = resolve;
      await promise;
    }
    return this.#heard.shift() ?? hangUp;
  }

  async expect(kind: number): Promise<Heard> {
    const heard = await this.next();
    if (heard === hangUp || heard.kind !== kind) {
      throw new Error(`expected a message of kind ${kind}, not ${heard === hangUp ? heard : heard.kind}`);
    }
    return heard;
  }

  /** All that came, after the daemon has answered one more message: what is sent before is done. */
  async settle(): Promise<readonly Heard[]> {
    const before: Heard[] = [];
    // An offer without a socket is declined.
    this.send({ kind: messageKinds.offer, connection: 0xffff_ffff });
    for (;;) {
      const heard = await this.next();
      if (heard === hangUp) throw new Error('the daemon hung up');
      if (heard.kind === messageKinds.decline && heard.connection === 0xffff_ffff) return before;
      before.push(heard);
    }
  }

  close(): void {
    this.#watch.close();
    this.#socket.close();
    this.#desk?.close();
    for (const heard of this.#heard) if (heard !== hangUp) for (const fd of heard.fds) fd.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #start(): FdWatch {
    const watch = FdWatch.start(this.#socket.fd, () => this.#hear());
    watch.hold(true);
    return watch;
  }

  #hear(): void {
    try {
      for (;;) {
        const received = this.#socket.receiveFds(this.#buffer);
        if (received === undefined) break;
        const message = decodeMessage(this.#buffer.subarray(0, received.bytes));
        if (message === null) {
          this.#end();
          break;
        }
        this.#heard.push({ ...message, fds: received.fds });
      }
    } catch {
      this.#end();
    }
    this.#onHeard?.();
  }

  #end(): void {
    this.#heard.push(hangUp);
    this.#watch.close();
  }
}
