// The first lines of a control connection: two hellos, and the dialer's proof that its own is not a recording.

import { randomBytes } from 'node:crypto';
import { ProtocolError } from '../../errors.ts';
import type { Message } from './control-protocol.ts';
import type { PeerHello } from './control-spec.ts';

/** 32 hex digits that nobody can foresee. */
export function makeNonce(): string {
  return randomBytes(16).toString('hex');
}

export interface HandshakeOptions {
  /** Our own. */
  readonly hello: PeerHello;
  readonly isDialer: boolean;
  /** Throws a ProtocolError when whoever says this hello is not who it says, or not expected. */
  readonly identify: (hello: PeerHello) => void;
}

export class Handshake {
  readonly #options: HandshakeOptions;
  readonly #nonce = makeNonce();
  #peer: PeerHello | undefined;
  #isDone = false;

  constructor(options: HandshakeOptions) {
    this.#options = options;
  }

  get isDialer(): boolean {
    return this.#options.isDialer;
  }

  /** Who the other side is, as soon as everything it said may be believed. */
  get peer(): PeerHello | undefined {
    return this.#isDone ? this.#peer : undefined;
  }

  /** What to say before anything was heard. */
  open(): Message | undefined {
    return this.isDialer ? { kind: 'hello', ...this.#options.hello, nonce: undefined } : undefined;
  }

  /** Takes a line of the other side; what to answer. Throws a ProtocolError when the line is out of place. */
  hear(message: Message): Message | undefined {
    if (message.kind === 'hello') {
      if (this.#peer !== undefined) throw new ProtocolError('a second hello');
      const { kind: _kind, nonce, ...hello } = message;
      return this.#greet(hello, nonce);
    }
    if (this.#peer === undefined) throw new ProtocolError('no hello before anything else');
    if (message.kind !== 'proof') throw new ProtocolError('no proof after the hello');
    if (message.nonce !== this.#nonce)
      throw new ProtocolError('the proof of another connection, as in a replayed hello');
    this.#isDone = true;
    return undefined;
  }

  #greet(peer: PeerHello, nonce: string | undefined): Message {
    const { hello, isDialer, identify } = this.#options;
    if (isDialer && nonce === undefined) throw new ProtocolError('a hello without a nonce');
    if (!isDialer && nonce !== undefined) throw new ProtocolError('a nonce from a dialer');
    identify(peer);
    this.#peer = peer;
    if (nonce === undefined) return { kind: 'hello', ...hello, nonce: this.#nonce };
    this.#isDone = true;
    return { kind: 'proof', nonce };
  }
}
