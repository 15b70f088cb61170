// Why a stream fails: the codes in the ledger, and the errors that programs get.

import { getSystemErrorName } from 'node:util';
import { type ErrorCode, MillraceError } from '../../errors.ts';

/**
 * Values of the ledger's `failure` word; native/pager.h has them too. A failed system call is
 * `system` plus its errno.
 */
export const failureCode = {
  peerDied: 1,
  cut: 2,
  timedOut: 3,
  behind: 4,
  pastEnd: 5,
  producerClosed: 6,
  consumerClosed: 7,
  protocol: 8,
  terminated: 9,
  system: 1000,
} as const;

const MAX_ERRNO = 4095;

export type Role = 'producer' | 'consumer';

const texts: ReadonlyMap<number, readonly [code: ErrorCode, text: string]> = new Map([
  [failureCode.peerDied, ['MILLRACE_ERR_VORTEX_PEER_DIED', 'the process at the other end has ended']],
  [failureCode.cut, ['MILLRACE_ERR_VORTEX_CUT', 'the connection to the other end was lost']],
  [failureCode.timedOut, ['MILLRACE_ERR_VORTEX_TIMED_OUT', 'the other end did nothing for too long (see timeoutMs)']],
  [
    failureCode.behind,
    [
      'MILLRACE_ERR_VORTEX_BEHIND',
      'the program touched a block further behind than it may come back, or after finish (raise revisitBlocks)',
    ],
  ],
  [failureCode.pastEnd, ['MILLRACE_ERR_VORTEX_PAST_END', 'the program touched a block past the end (check sizeBytes)']],
  [failureCode.protocol, ['MILLRACE_ERR_VORTEX_PROTOCOL', 'the other end violated the protocol of the stream']],
  [
    failureCode.terminated,
    ['MILLRACE_ERR_VORTEX_TERMINATED', 'the thread at one end was terminated before it closed the stream'],
  ],
]);

/**
 * A stream has failed. What the program read from or wrote to its window since then is not part of
 * the stream.
 */
export class VortexError extends MillraceError {
  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(code, message, options);
    this.name = 'VortexError';
  }
}

/**
 * The error for the program at this end. The other end may have written the code: an unknown one is
 * a protocol error.
 */
export function errorOfFailure(code: number, role: Role): VortexError {
  if (code === failureCode.producerClosed || code === failureCode.consumerClosed) return errorOfClosing(code, role);
  if (code > failureCode.system && code <= failureCode.system + MAX_ERRNO) {
    const name = getSystemErrorName(failureCode.system - code);
    return new VortexError('MILLRACE_ERR_VORTEX_SYSTEM', `the stream failed: a system call failed with ${name}`);
  }
  const [errorCode, text] = texts.get(code) ?? [
    'MILLRACE_ERR_VORTEX_PROTOCOL',
    `its ledger has the unknown failure ${code}`,
  ];
  return new VortexError(errorCode, `the stream failed: ${text}`);
}

function errorOfClosing(code: number, role: Role): VortexError {
  const isOurs = (code === failureCode.producerClosed) === (role === 'producer');
  return isOurs
    ? new VortexError('MILLRACE_ERR_VORTEX_ABORTED', 'the stream was closed at this end before everything was through')
    : new VortexError(
        'MILLRACE_ERR_VORTEX_CLOSED_BY_PEER',
        'the stream was closed by the other end before everything was through',
      );
}
