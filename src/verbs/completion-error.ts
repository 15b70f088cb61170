// A completion that failed, as an error: the operation, the QP, the peer and the likely cause.

import { type Completion, type CompletionStatus, completionStatuses, likelyCauses } from './completion.ts';

/** An error of the device, not a mistake of the program: so it is no MillraceError. */
export class CompletionError extends Error {
  readonly code: CompletionStatus;
  readonly status: number;
  readonly wrId: number;
  readonly qpNumber: number;

  constructor(completion: Completion, qp: { readonly number: number; readonly peer: string }) {
    const { status, wrId } = completion;
    super(`request ${wrId} on QP ${qp.number} to ${qp.peer}: ${status} (${likelyCauses[status]})`);
    this.name = 'CompletionError';
    this.code = status;
    this.status = completionStatuses[status];
    this.wrId = wrId;
    this.qpNumber = qp.number;
  }
}
