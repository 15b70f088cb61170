// The first lines of a control connection: two hellos, and the dialer's proof that its own is not a
// recording.

import { randomBytes } from 'node:crypto';
import { ProtocolError } from '../../errors.ts';
import { helloMessage, type Message } from './control-protocol.ts';
import type { PeerHello } from './control-spec.ts';

/** 32 random hex digits. */
export function makeNonce(): string {
  return randomBytes(16).toString('hex');
}

interface HandshakeOptions {
  /** The hello of this side. */
  readonly hello: PeerHello;
  readonly isDialer: boolean;
  /**
   * Throws a ProtocolError when the sender of this hello is not the peer that it names, or is not
   * expected.
   */
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

  /** The other side's hello, once it is proven. */
  get peer(): PeerHello | undefined {
    return this.#isDone ? this.#peer : undefined;
  }

  /** What to send first. */
  open(): Message | undefined {
    return this.isDialer ? helloMessage(this.#options.hello) : undefined;
  }

  /**
   * Takes a message of the other side and returns the answer. Throws a ProtocolError when it is out
   * of place.
   */
  hear(message: Message): Message | undefined {
    if (message.kind === 'hello') {
      if (this.#peer !== undefined) throw new ProtocolError('a second hello');
      const { kind: _kind, nonce, ...hello } = message;
      return this.#greet(hello, nonce);
    }
    if (this.#peer === undefined) throw new ProtocolError('the first message is not a hello');
    if (message.kind !== 'proof') throw new ProtocolError('the message after the hello is not a proof');
    if (message.nonce !== this.#nonce)
      throw new ProtocolError('the proof is of another connection: the hello is a replayed one');
    this.#isDone = true;
    return undefined;
  }

  #greet(peer: PeerHello, nonce: string | undefined): Message {
    const { hello, isDialer, identify } = this.#options;
    if (isDialer && nonce === undefined) throw new ProtocolError('a hello without a nonce');
    if (!isDialer && nonce !== undefined) throw new ProtocolError('a nonce from a dialer');
    identify(peer);
    if (peer.admission !== hello.admission) {
      throw new ProtocolError(
        `its admission is ${peer.admission}, and here it is ${hello.admission}: give both the same`,
      );
    }
    this.#peer = peer;
    if (nonce === undefined) return helloMessage(hello, this.#nonce);
    this.#isDone = true;
    return { kind: 'proof', nonce };
  }
}
