// Why a stream ended before its end, inside the engine, and how that is recorded in the ledger.

import { ProtocolError, UsageError } from '../../errors.ts';
import { failureCode, type Role } from '../stream/index.ts';

/**
 * `died`: the peer is gone without a hang-up. `silent`: nothing came from it for too long.
 * `closed`: it hung up before the end of the stream. `protocol`: it violated the protocol. `wire`:
 * the network that carries the blocks failed.
 */
export type FailureKind = 'died' | 'silent' | 'closed' | 'protocol' | 'wire';

export class StreamFailure extends Error {
  readonly kind: FailureKind;

  constructor(kind: FailureKind, reason: string, options?: ErrorOptions) {
    super(reason, options);
    this.name = 'StreamFailure';
    this.kind = kind;
  }
}

/**
 * Any error as a failure. In the engine, a UsageError means that what the peer sent cannot be
 * accepted.
 */
export function failureOf(error: unknown): StreamFailure {
  if (error instanceof StreamFailure) return error;
  const reason = error instanceof Error ? error.message : String(error);
  const isRefused = error instanceof ProtocolError || error instanceof UsageError;
  return new StreamFailure(isRefused ? 'protocol' : 'wire', reason, { cause: error });
}

/** The failure as a word of the ledger. `role`: which end this host's program has. */
export function failureCodeOf(kind: FailureKind, role: Role): number {
  switch (kind) {
    case 'died':
      return failureCode.peerDied;
    case 'silent':
      return failureCode.timedOut;
    case 'protocol':
      return failureCode.protocol;
    case 'wire':
      return failureCode.cut;
    case 'closed':
      return role === 'producer' ? failureCode.consumerClosed : failureCode.producerClosed;
  }
}
