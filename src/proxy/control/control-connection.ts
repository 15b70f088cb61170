// One control connection, from the first hello to the last line: whoever dialed, both sides follow
// the same protocol.

import type { X509Certificate } from 'node:crypto';
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { ProtocolError } from '../../errors.ts';
import { Heartbeat, hangUp, LineBudget, LineSplitter, MAX_LINE_BYTES } from '../../json-lines/index.ts';
import { printable } from '../../text/index.ts';
import {
  controlProtocol,
  type DirectWord,
  type GateMessage,
  type KnockMessage,
  MAX_AT_ONCE,
  type Message,
  type PeerMessage,
} from './control-protocol.ts';
import type { HeartbeatSpec, PeerHello } from './control-spec.ts';
import { DirectTeller } from './direct-teller.ts';
import type { Handshake } from './handshake.ts';

/** More than this waits to be sent: the peer does not read. */
const MAX_UNSENT_BYTES = 4 * 1024 * 1024;

/**
 * `lost`: closed, broken or silent. `left`: one side said bye. `refused`: the other side says that
 * we broke the protocol. `misbehaved`: it did.
 */
type EndKind = 'lost' | 'left' | 'refused' | 'misbehaved';

export interface ConnectionEnd {
  readonly kind: EndKind;
  readonly reason: string;
}

export interface ConnectionEvents {
  /** Both hellos are exchanged and believed. */
  onGreeted(connection: ControlConnection, hello: PeerHello): void;
  onMessage(connection: ControlConnection, message: PeerMessage): void;
  /** Once, and the last event. */
  onEnd(connection: ControlConnection, end: ConnectionEnd): void;
}

export class ControlConnection {
  /** What the peer showed. Undefined when insecure. */
  readonly certificate: X509Certificate | undefined;
  readonly #socket: Socket;
  readonly #handshake: Handshake;
  readonly #beat: HeartbeatSpec;
  readonly #events: ConnectionEvents;
  readonly #lines = new LineSplitter(MAX_LINE_BYTES, new LineBudget());
  readonly #direct = new DirectTeller((message) => this.#send(message));
  readonly #untold: (KnockMessage | GateMessage)[] = [];
  #heartbeat: Heartbeat | undefined;
  #isEnded = false;

  /** Takes over a socket that is connected, and secure if it has to be. */
  constructor(socket: Socket, handshake: Handshake, beat: HeartbeatSpec, events: ConnectionEvents) {
    this.#socket = socket;
    // Asked once: the second answer on a connection that this side dialed is undefined (Node 24).
    this.certificate = socket instanceof TLSSocket ? socket.getPeerX509Certificate() : undefined;
    this.#handshake = handshake;
    this.#beat = beat;
    this.#events = events;
    socket.setNoDelay(true);
    socket.on('data', (bytes) => this.#take(bytes));
    socket.on('error', (error: NodeJS.ErrnoException) => this.#end('lost', printable(error.code ?? error.message)));
    socket.on('close', () => this.#end('lost', 'the peer closed the connection'));
    const opening = handshake.open();
    if (opening !== undefined) this.#send(opening);
    // The acceptor paused it after it had inspected the first bytes.
    socket.resume();
  }

  get isSecure(): boolean {
    return this.#socket instanceof TLSSocket;
  }

  get isDialer(): boolean {
    return this.#handshake.isDialer;
  }

  get roundTripMs(): number {
    return this.#heartbeat?.roundTripMs ?? -1;
  }

  /** Lines of the protocol that were made for several peers. */
  tellLines(lines: Buffer): void {
    this.#write(lines);
  }

  tellAddresses(number: number, addresses: readonly string[]): void {
    this.#send({ kind: 'addresses', number, addresses });
  }

  /** The addresses of that number count here. */
  tellKnown(number: number): void {
    this.#send({ kind: 'addressesKnown', number });
  }

  /** About packets between the two hosts. What is told in one turn goes in few lines. */
  tellAdmission(message: KnockMessage | GateMessage): void {
    if (this.#untold.push(message) === 1) setImmediate(() => this.#tellAll());
  }

  /** About direct connections between the two hosts. */
  tellDirect(word: DirectWord): void {
    if (!this.#isEnded) this.#direct.tell(word);
  }

  #tellAll(): void {
    const byKind = Map.groupBy(this.#untold.splice(0), ({ kind }) => kind);
    for (const [kind, list] of byKind) {
      for (let at = 0; at < list.length; at += MAX_AT_ONCE) {
        this.#send({ kind, list: list.slice(at, at + MAX_AT_ONCE) } as Message);
      }
    }
  }

  /** False when the connection has ended. */
  sendLink(link: number, body: object): boolean {
    this.#send({ kind: 'link', link, body });
    return !this.#isEnded;
  }

  /** Ends it in order. */
  leave(reason: string): void {
    this.#finish('left', 'bye', reason);
  }

  /** Ends it because the other side broke the protocol. */
  refuse(reason: string): void {
    this.#finish('misbehaved', 'refused', reason);
  }

  /** Ends it without a last line, which nobody would read. */
  lose(reason: string): void {
    this.#socket.destroy();
    this.#end('lost', reason);
  }

  #take(bytes: Buffer): void {
    this.#heartbeat?.heard();
    this.#lines.push(bytes);
    while (!this.#isEnded) {
      const message = this.#check(() => this.#next());
      if (message === undefined) return;
      this.#hear(message);
    }
  }

  #next(): Message | undefined {
    const line = this.#lines.next();
    return line === undefined ? undefined : controlProtocol.parse(line);
  }

  /**
   * Refuses a peer that breaks the protocol. Used only where a line is read: an error of a handler
   * is not the peer's.
   */
  #check<T>(read: () => T): T | undefined {
    try {
      return read();
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      this.refuse(error.message);
      return undefined;
    }
  }

  #hear(message: Message): void {
    if (message.kind === 'refused') this.#hangUpAfter('refused', message.reason);
    else if (message.kind === 'bye') this.#hangUpAfter('left', message.reason);
    else if (this.#handshake.peer === undefined) this.#shakeHands(message);
    else if (message.kind === 'hello') this.refuse('a second hello');
    else if (message.kind === 'proof') this.refuse('a proof that nobody asked for');
    else if (message.kind === 'ping') this.#send({ kind: 'pong', number: message.number });
    else if (message.kind === 'pong') this.#check(() => this.#heartbeat?.answered(message.number));
    else this.#events.onMessage(this, message);
  }

  #shakeHands(message: Message): void {
    const answer = this.#check(() => this.#handshake.hear(message));
    if (answer !== undefined) this.#send(answer);
    const { peer } = this.#handshake;
    if (peer === undefined || this.#isEnded) return;
    this.#heartbeat = new Heartbeat({
      ...this.#beat,
      isSecond: !this.isDialer,
      ping: (number) => this.#send({ kind: 'ping', number }),
      onDead: (reason) => this.lose(reason),
    });
    this.#events.onGreeted(this, peer);
  }

  #send(message: Message): void {
    this.#write(controlProtocol.line(message));
  }

  #write(lines: string | Buffer): void {
    if (this.#isEnded) return;
    this.#socket.write(lines);
    if (this.#socket.writableLength > MAX_UNSENT_BYTES) this.lose('the peer does not read');
  }

  /** The other side has said its last line. What was not sent yet has no reader. */
  #hangUpAfter(kind: EndKind, reason: string): void {
    this.#socket.destroy();
    this.#end(kind, reason);
  }

  #finish(kind: EndKind, last: 'bye' | 'refused', reason: string): void {
    if (this.#isEnded) return;
    hangUp(this.#socket, controlProtocol.line({ kind: last, reason }));
    this.#end(kind, printable(reason));
  }

  #end(kind: EndKind, reason: string): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    this.#heartbeat?.stop();
    this.#direct.close();
    this.#events.onEnd(this, { kind, reason });
  }
}
