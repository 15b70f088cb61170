// The messages between a program's thread and the engine of its stream: plain data.

import type { ControlSecurity } from '../../../tls/index.ts';
import type { BlockQueueParts } from '../../stream/index.ts';
import type { Strategy } from '../protocol.ts';
import type { FailureKind } from '../stream-failure.ts';

interface CommonSettings {
  readonly security: ControlSecurity;
  /** The name that the peer's certificate must have; undefined: any of our authority. */
  readonly peerName: string | undefined;
  /**
   * The RDMA device; undefined: TCP at a sender, a device that fits the sender's wire at a
   * receiver.
   */
  readonly device: string | undefined;
  readonly strategy: Strategy | undefined;
  /** A peer that is silent for longer fails the stream. */
  readonly timeoutMs: number;
}

export interface SenderSettings extends CommonSettings {
  readonly role: 'sender';
  /** Undefined: all addresses. */
  readonly host: string | undefined;
  readonly port: number;
  readonly queue: BlockQueueParts;
}

export interface ReceiverSettings extends CommonSettings {
  readonly role: 'receiver';
  readonly host: string;
  readonly port: number;
}

export type EngineSettings = (SenderSettings | ReceiverSettings) & {
  /**
   * The engine's socket of a pair, for it to adopt: however the thread ends, the pager sees the
   * other socket hang up.
   */
  readonly lifelineFd: number;
};

export type ToEngine =
  | { readonly kind: 'start'; readonly settings: EngineSettings }
  /** The receiver's answer to `geometry`. */
  | { readonly kind: 'queue'; readonly parts: BlockQueueParts }
  | { readonly kind: 'close'; readonly reason: string }
  /** No other stream follows: the thread ends. */
  | { readonly kind: 'retire' };

export type FromEngine =
  | { readonly kind: 'listening'; readonly port: number }
  /** A receiver was refused; the sender goes on listening. */
  | { readonly kind: 'refused'; readonly reason: string }
  /** A receiver has got the sender's offer, and needs a queue. */
  | { readonly kind: 'geometry'; readonly blockBytes: number; readonly sizeBytes: number | undefined }
  | { readonly kind: 'ready' }
  /** The last message of a stream. */
  | { readonly kind: 'ended'; readonly failure: EngineFailure | undefined }
  /**
   * Nothing of the stream is left: the thread can get another one. A thread that does not send this
   * ends.
   */
  | { readonly kind: 'idle' };

export interface EngineFailure {
  /**
   * `usage`: the options of this end cannot work. `unsupported`: this host lacks something.
   * `absent`: no sender listens there. `failed`: an error of this host.
   */
  readonly kind: FailureKind | 'usage' | 'unsupported' | 'absent' | 'failed';
  readonly reason: string;
}
