// The settings of both sides of a file transfer, and what they report while they work.

import type { Strategy, StreamTls } from '../index.ts';

export interface FileTransferSettings {
  /** An RDMA device. Default at a sender: TCP. Default at a receiver: what the sender has. */
  readonly device?: string | undefined;
  readonly strategy?: Strategy | undefined;
  /** A peer that is silent for so long is given up. */
  readonly timeoutMs: number;
  /** For so long a peer is waited for, at first or again. */
  readonly waitMs: number;
  readonly tls?: StreamTls | undefined;
  readonly signal: AbortSignal;
  readonly onNews: (news: News) => void;
}

export type News =
  | { readonly kind: 'listening'; readonly host: string | undefined; readonly port: number }
  | { readonly kind: 'refused'; readonly reason: string }
  /** `haveBytes`: bytes at the receiver that need not be sent, if the file begins with them. */
  | { readonly kind: 'met'; readonly peer: string; readonly haveBytes: number }
  | { readonly kind: 'checking' | 'moving'; readonly bytes: number; readonly totalBytes: number | undefined }
  | { readonly kind: 'afresh'; readonly reason: string }
  | { readonly kind: 'broken'; readonly error: Error; readonly waitMs: number };

export interface Receipt {
  /** Where the file is now; undefined for a pipe. */
  readonly path: string | undefined;
  readonly peer: string;
  readonly sizeBytes: number;
  /** Bytes of these that were there before this transfer. */
  readonly resumedBytes: number;
  readonly sha256: string;
}
