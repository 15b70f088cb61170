// Why a stream ended before its end, inside the engine.

import { UsageError } from '../../errors.ts';

/**
 * `died`: the peer is gone without a word. `silent`: nothing came from it for too long. `closed`: it said that it ends the
 * stream. `nonsense`: it broke the rules. `wire`: what carries the blocks failed.
 */
export type FailureKind = 'died' | 'silent' | 'closed' | 'nonsense' | 'wire';

export class StreamFailure extends Error {
  readonly kind: FailureKind;

  constructor(kind: FailureKind, reason: string, options?: ErrorOptions) {
    super(reason, options);
    this.name = 'StreamFailure';
    this.kind = kind;
  }
}

/** Whatever was thrown, as a failure; UsageErrors come from what the peer said. */
export function failureOf(error: unknown): StreamFailure {
  if (error instanceof StreamFailure) return error;
  const reason = error instanceof Error ? error.message : String(error);
  return new StreamFailure(error instanceof UsageError ? 'nonsense' : 'wire', reason, { cause: error });
}
