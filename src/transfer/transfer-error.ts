// Why a transfer failed, for programs to tell apart.

import { MillraceError } from '../errors.ts';

/**
 * `nodeGone`: the other node ended, or was cut off. `refused`: the device failed the request;
 * `cause` has its completion.
 */
export type TransferFailure = 'nodeGone' | 'refused' | 'closed';

export class TransferError extends MillraceError {
  readonly reason: TransferFailure;
  /** Of the transfer; 0 when it is about no transfer. */
  readonly transferId: number;

  constructor(reason: TransferFailure, transferId: number, message: string, options?: ErrorOptions) {
    super(reason === 'closed' ? 'MILLRACE_ERR_CLOSED' : 'MILLRACE_ERR_FAILED', message, options);
    this.name = 'TransferError';
    this.reason = reason;
    this.transferId = transferId;
  }
}
