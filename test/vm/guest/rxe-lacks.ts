// What the kernel's rxe cannot do, with the reasons: printed with the tests that are left out.

import type { ConformanceTarget } from '../../conformance/index.ts';

export const rxeLacks: NonNullable<ConformanceTarget['lacks']> = {
  exactQueues: 'rxe makes queues longer than asked for, to the next power of two',
  sendQueueResume: 'rxe goes on with what was posted in SQD only at the next request that is posted',
  cqOverrun: 'rxe tells of the overflow and drops the completion, but its QPs go on',
  qpFatal: 'rxe raises no event when a QP dies',
  boundGrants: 'a key of a second registration is good for all QPs of the protection domain',
  solicitedErrors: 'rxe does not treat failed completions as solicited',
  localStatus: 'rxe may complete a request that failed here as flushed',
  receiveStatus: 'rxe calls every fault of a receive LOC_QP_OP_ERR, and REM_OP_ERR at the sender',
  unalignedAtomics: 'the rxe library refuses them when they are posted',
};
