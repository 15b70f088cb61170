// The layout of the rings of a queue pair, a shared receive queue or a completion queue; both sides
// compute it alike.

import { completionRow, receiveRow, sendRow, sgeRow } from '../../verbs/index.ts';
import { completionRing, requestRing } from './call-protocol.ts';

/** A ring of requests. Sizes and offsets are in words, from the start of its memory. */
export interface RequestRingShape {
  /** How many requests may be under way. */
  readonly requests: number;
  /** Rows there are: a power of two, so that a count that wraps at 2^32 still finds its row. */
  readonly slots: number;
  readonly maxSge: number;
  readonly rowWords: number;
  readonly at: number;
  readonly words: number;
}

function slotsFor(requests: number): number {
  return 2 ** Math.ceil(Math.log2(requests));
}

function requestRingAt(at: number, requests: number, maxSge: number, fixedWords: number): RequestRingShape {
  const slots = slotsFor(requests);
  const rowWords = fixedWords + maxSge * sgeRow.words;
  // Whole cache lines, so that the next one starts on its own.
  const words = Math.ceil((requestRing.rows + slots * rowWords) / 16) * 16;
  return { requests, slots, maxSge, rowWords, at, words };
}

export interface QpSizes {
  readonly sendRequests: number;
  /** 0 with an SRQ. */
  readonly receiveRequests: number;
  readonly maxSge: number;
  readonly maxInlineBytes: number;
}

export interface QpShape {
  readonly send: RequestRingShape;
  readonly receive: RequestRingShape | undefined;
  /** Bytes, from the start of the memory; each row of the send ring has `inlineStride` of them. */
  readonly inlineAt: number;
  readonly inlineStride: number;
  readonly sizeBytes: number;
}

export function qpShape({ sendRequests, receiveRequests, maxSge, maxInlineBytes }: QpSizes): QpShape {
  const send = requestRingAt(0, sendRequests, maxSge, sendRow.sge);
  const receive = receiveRequests === 0 ? undefined : receiveRingShape(receiveRequests, maxSge, send.words);
  const inlineAt = (send.words + (receive?.words ?? 0)) * 4;
  const inlineStride = Math.ceil(maxInlineBytes / 8) * 8;
  return { send, receive, inlineAt, inlineStride, sizeBytes: inlineAt + send.slots * inlineStride };
}

export function receiveRingShape(requests: number, maxSge: number, at = 0): RequestRingShape {
  return requestRingAt(at, requests, maxSge, receiveRow.sge);
}

export interface CompletionRingShape {
  readonly entries: number;
  readonly slots: number;
  readonly sizeBytes: number;
}

export function completionRingShape(entries: number): CompletionRingShape {
  const slots = slotsFor(entries);
  return { entries, slots, sizeBytes: (completionRing.rows + slots * completionRow.words) * 4 };
}
