// What a program's thread and a stream's engine say to each other: plain data.

import type { ControlSecurity } from '../../tls/index.ts';
import type { BlockQueueParts } from '../stream/index.ts';
import type { Strategy } from './protocol.ts';
import type { FailureKind } from './stream-failure.ts';

interface CommonSettings {
  readonly security: ControlSecurity;
  /** What the certificate of the other side must say; undefined: anything of our authority. */
  readonly peerName: string | undefined;
  /** The RDMA device; undefined: TCP at a sender, whatever fits at a receiver. */
  readonly device: string | undefined;
  readonly strategy: Strategy | undefined;
  /** A peer that is silent for so long is given up. */
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
  /** The engine's end of a socket pair, for it to adopt: however the thread ends, the pager at the other end notices. */
  readonly lifeFd: number;
};

export type ToEngine =
  | { readonly kind: 'start'; readonly settings: EngineSettings }
  /** The receiver's answer to `geometry`. */
  | { readonly kind: 'queue'; readonly parts: BlockQueueParts }
  | { readonly kind: 'close'; readonly reason: string }
  /** No other stream comes: the thread ends. */
  | { readonly kind: 'retire' };

export type FromEngine =
  | { readonly kind: 'listening'; readonly port: number }
  /** A caller that did not fit; the next one may. */
  | { readonly kind: 'refused'; readonly reason: string }
  /** A receiver knows what the stream is like, and needs a queue. */
  | { readonly kind: 'geometry'; readonly blockBytes: number; readonly sizeBytes: number | undefined }
  | { readonly kind: 'ready'; readonly peer: string }
  /** The last one of a stream. */
  | { readonly kind: 'ended'; readonly failure: EngineFailure | undefined }
  /** Nothing of it is left: the thread can have another one. Without this word it ends. */
  | { readonly kind: 'idle' };

export interface EngineFailure {
  /**
   * `usage`: what this side asked for cannot be. `unsupported`: not on this machine. `absent`: nobody is there. `failed`:
   * its own host refused.
   */
  readonly kind: FailureKind | 'usage' | 'unsupported' | 'absent' | 'failed';
  readonly reason: string;
}
