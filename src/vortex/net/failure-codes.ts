// How the engine's failures stand in the ledger.

import { failureCode, type Role } from '../stream/index.ts';
import type { FailureKind } from './stream-failure.ts';

/** `role`: what this side's program is. */
export function failureCodeOf(kind: FailureKind, role: Role): number {
  switch (kind) {
    case 'died':
      return failureCode.peerDied;
    case 'silent':
      return failureCode.timedOut;
    case 'nonsense':
      return failureCode.protocol;
    case 'wire':
      return failureCode.cut;
    case 'closed':
      return role === 'producer' ? failureCode.consumerClosed : failureCode.producerClosed;
  }
}
