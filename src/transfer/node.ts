// Another node while it is connected: its buffers, which of ours it was offered, and the transfers
// to and from it.

import type { Socket } from 'node:net';
import { MillraceError, ProtocolError } from '../errors.ts';
import { readMessage, unexpected, writeMessage } from '../json-lines/index.ts';
import { type LocalBuffer, RemoteBuffer } from './buffer.ts';
import type { Engine } from './engine.ts';
import { nodeIdOf } from './ids.ts';
import { type BufferOffer, MAX_BUFFERS, MAX_LINE_BYTES, type Message, transferProtocol } from './protocol.ts';

/** A node for which so many bytes wait to be sent does not read, and is disconnected. */
const MAX_UNREAD_BYTES = 1 << 20;

interface Offer {
  readonly rkey: number;
  /** Resolves when the node was asked to give the buffer back, and has. */
  readonly freed: PromiseWithResolvers<void>;
  isAsked: boolean;
}

export class TransferNode {
  readonly id: number;
  readonly engine: Engine;
  readonly #socket: Socket;
  readonly #onGone: (node: TransferNode) => void;
  readonly #offers = new Map<LocalBuffer, Offer>();
  readonly #buffers = new Map<number, RemoteBuffer>();
  readonly #names = new Map<string, RemoteBuffer>();
  readonly #waiting = new Map<string, PromiseWithResolvers<RemoteBuffer>>();
  #goneWhy: string | undefined;

  constructor(id: number, socket: Socket, engine: Engine, onGone: (node: TransferNode) => void) {
    this.id = id;
    this.#socket = socket;
    this.engine = engine;
    this.#onGone = onGone;
    void this.#listen();
  }

  get isGone(): boolean {
    return this.#goneWhy !== undefined;
  }

  /** The buffers that it has offered and not freed. */
  get buffers(): readonly RemoteBuffer[] {
    return [...this.#buffers.values()];
  }

  buffer(id: number): RemoteBuffer | undefined {
    return this.#buffers.get(id);
  }

  /**
   * Its buffer of that name, now or as soon as it offers one. Rejects when it disconnects before.
   */
  async bufferNamed(name: string): Promise<RemoteBuffer> {
    const known = this.#names.get(name);
    if (known !== undefined) return known;
    if (this.#goneWhy !== undefined) throw gone(this.id, this.#goneWhy);
    const waiting = this.#waiting.get(name) ?? Promise.withResolvers<RemoteBuffer>();
    this.#waiting.set(name, waiting);
    return waiting.promise;
  }

  /** Offers it a buffer of this node, with an rkey for that node alone. */
  offer(buffer: LocalBuffer): void {
    if (this.isGone) return;
    const rkey = buffer.mr.grant(this.engine.qp);
    this.#offers.set(buffer, { rkey, freed: Promise.withResolvers(), isAsked: false });
    const { id, name, mr } = buffer;
    this.#send({ kind: 'buffer', id, name, region: mr.remote(rkey) });
  }

  /**
   * Resolves when the node uses the buffer no more: it said so, or it was disconnected because it
   * did not in time.
   */
  async takeBack(buffer: LocalBuffer, timeoutMs: number): Promise<void> {
    const offer = this.#offers.get(buffer);
    if (offer === undefined) return;
    offer.isAsked = true;
    this.#send({ kind: 'free', id: buffer.id });
    const timer = setTimeout(
      () => this.close(`it did not give back buffer ${buffer.id} in ${timeoutMs} ms`),
      timeoutMs,
    );
    await offer.freed.promise;
    clearTimeout(timer);
    this.#offers.delete(buffer);
  }

  /** Transfers under way fail with this reason. Closing twice is harmless. */
  close(why = 'this node closed the connection'): void {
    if (this.isGone) return;
    this.#goneWhy = why;
    this.#socket.end(transferProtocol.line({ kind: 'bye', reason: why }));
    // Further lines of the node are dropped; without this an unread byte would hold the socket
    // open.
    this.#socket.resume();
    this.#socket.setTimeout(1000, () => this.#socket.destroy());
    for (const buffer of this.#buffers.values()) buffer.isFreed = true;
    this.engine.close(`node ${this.id} is gone: ${why}`);
    for (const [buffer, { rkey, freed }] of this.#offers) {
      revoke(buffer, rkey);
      freed.resolve();
    }
    for (const waiting of this.#waiting.values()) waiting.reject(gone(this.id, why));
    this.#onGone(this);
  }

  async #listen(): Promise<void> {
    try {
      const limits = { maxBytes: MAX_LINE_BYTES };
      while (!this.isGone) this.#receive(await readMessage(this.#socket, transferProtocol, limits));
    } catch (error) {
      this.close(error instanceof Error ? error.message : String(error));
    }
  }

  #receive(message: Message): void {
    switch (message.kind) {
      case 'buffer':
        this.#learn(message);
        return;
      case 'free':
        void this.#giveBack(message.id);
        return;
      case 'freed':
        this.#wasGivenBack(message.id);
        return;
      case 'bye':
        this.close(`it said: ${message.reason}`);
        return;
      default:
        throw unexpected(message, 'buffer, free, freed or bye');
    }
  }

  #learn(offer: BufferOffer): void {
    if (nodeIdOf(offer.id) !== this.id) throw new ProtocolError(`it offered buffer ${offer.id}, which is not its own`);
    if (this.#buffers.has(offer.id)) throw new ProtocolError(`it offered buffer ${offer.id} twice`);
    if (this.#buffers.size >= MAX_BUFFERS) throw new ProtocolError(`it offered more than ${MAX_BUFFERS} buffers`);
    const buffer = new RemoteBuffer(this.id, offer);
    this.#buffers.set(buffer.id, buffer);
    if (buffer.name === undefined) return;
    this.#names.set(buffer.name, buffer);
    this.#waiting.get(buffer.name)?.resolve(buffer);
    this.#waiting.delete(buffer.name);
  }

  async #giveBack(id: number): Promise<void> {
    const buffer = this.#buffers.get(id);
    if (buffer === undefined || buffer.isFreed) {
      this.close(`it freed buffer ${id}, which it does not have`);
      return;
    }
    buffer.isFreed = true;
    if (buffer.name !== undefined && this.#names.get(buffer.name) === buffer) this.#names.delete(buffer.name);
    await this.engine.settle(buffer.uses);
    this.#buffers.delete(id);
    this.#send({ kind: 'freed', id });
  }

  #wasGivenBack(id: number): void {
    for (const [buffer, offer] of this.#offers) {
      if (buffer.id !== id || !offer.isAsked) continue;
      offer.freed.resolve();
      return;
    }
    throw new ProtocolError(`it freed buffer ${id}, which nobody asked for`);
  }

  #send(message: Message): void {
    if (this.isGone) return;
    writeMessage(this.#socket, transferProtocol, message);
    if (this.#socket.writableLength > MAX_UNREAD_BYTES) this.close('it does not read what is sent to it');
  }
}

/** The keys of a device that is gone are gone with it. */
function revoke({ mr }: LocalBuffer, rkey: number): void {
  if (mr.isClosed) return;
  try {
    mr.revoke(rkey);
  } catch {
    // The key opens nothing any more.
  }
}

function gone(nodeId: number, why: string): MillraceError {
  return new MillraceError('MILLRACE_ERR_FAILED', `wait for a buffer of node ${nodeId}: ${why}`);
}
