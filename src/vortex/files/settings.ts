// What both sides of a file transfer can be told, and what they tell while they work.

import type { Strategy, StreamTls } from '../index.ts';

export interface FileTransferSettings {
  /** An RDMA device. Default: TCP at a sender; whatever the sender has at a receiver. */
  readonly device?: string | undefined;
  readonly strategy?: Strategy | undefined;
  /** A peer of which nothing was heard for so long is given up. */
  readonly timeoutMs: number;
  /** So long another attempt is made to meet a peer, or to meet it again. */
  readonly waitMs: number;
  readonly tls?: StreamTls | undefined;
  readonly signal: AbortSignal;
  readonly onNews: (news: News) => void;
}

export type News =
  | { readonly kind: 'listening'; readonly host: string | undefined; readonly port: number }
  | { readonly kind: 'refused'; readonly reason: string }
  /** `haveBytes`: what need not be sent, if it is what the file begins with. */
  | { readonly kind: 'met'; readonly peer: string; readonly haveBytes: number }
  | { readonly kind: 'checking' | 'moving'; readonly bytes: number; readonly totalBytes: number | undefined }
  | { readonly kind: 'afresh'; readonly reason: string }
  | { readonly kind: 'broken'; readonly error: Error; readonly waitMs: number };

export interface Receipt {
  /** Where the file is now; undefined for a pipe. */
  readonly path: string | undefined;
  readonly peer: string;
  readonly sizeBytes: number;
  /** Of these: what was there from before. */
  readonly resumedBytes: number;
  readonly sha256: string;
}
