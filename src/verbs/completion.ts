// Completions: rows that a poll fills, statuses with their numbers as in libibverbs, and what each
// means.

import { UsageError } from '../errors.ts';
import { SharedMemory } from '../native/index.ts';
import { read64 } from './work-request.ts';

/** enum ibv_wc_status. */
export const completionStatuses = {
  SUCCESS: 0,
  LOC_LEN_ERR: 1,
  LOC_QP_OP_ERR: 2,
  LOC_PROT_ERR: 4,
  WR_FLUSH_ERR: 5,
  BAD_RESP_ERR: 7,
  LOC_ACCESS_ERR: 8,
  REM_INV_REQ_ERR: 9,
  REM_ACCESS_ERR: 10,
  REM_OP_ERR: 11,
  RETRY_EXC_ERR: 12,
  RNR_RETRY_EXC_ERR: 13,
  REM_ABORT_ERR: 16,
  FATAL_ERR: 19,
  RESP_TIMEOUT_ERR: 20,
  GENERAL_ERR: 21,
} as const;

export type CompletionStatus = keyof typeof completionStatuses;

/** enum ibv_wc_opcode. Meaningful only when the status is SUCCESS. */
export const completionOpcodes = {
  send: 0,
  write: 1,
  read: 2,
  compareSwap: 3,
  fetchAdd: 4,
  receive: 128,
  receiveWriteWithImm: 129,
} as const;

export type CompletionOpcode = keyof typeof completionOpcodes;

/** Words of a completion row. */
export const completionRow = {
  wrId: 0,
  status: 2,
  opcode: 3,
  vendorError: 4,
  byteLength: 5,
  imm: 6,
  qpNumber: 7,
  sourceQp: 8,
  flags: 9,
  words: 12,
} as const;

export const completionFlags = {
  globalRoute: 1,
  hasImm: 2,
  /** The sender asked to wake the receiver; only on devices with the attribute `marksSolicited`. */
  solicited: 4,
} as const;

/** One completion as an object, for programs that are not that fast. */
export interface Completion {
  readonly wrId: number;
  readonly status: CompletionStatus;
  readonly opcode: CompletionOpcode;
  readonly byteLength: number;
  readonly qpNumber: number;
  readonly imm?: number;
}

const statusNames = new Map(Object.entries(completionStatuses).map(([name, value]) => [value as number, name]));
const opcodeNames = new Map(Object.entries(completionOpcodes).map(([name, value]) => [value as number, name]));

export function statusName(status: number): CompletionStatus {
  return (statusNames.get(status) ?? 'GENERAL_ERR') as CompletionStatus;
}

/** What usually causes a status, for error messages. */
export const likelyCauses: Readonly<Record<CompletionStatus, string>> = {
  SUCCESS: 'it worked',
  LOC_LEN_ERR: 'the message was longer than the posted receive, or the request longer than a message may be',
  LOC_QP_OP_ERR: 'the request was malformed, or not allowed on this kind of QP',
  LOC_PROT_ERR: 'an lkey was wrong, of another protection domain, or the range outside its region',
  WR_FLUSH_ERR: 'the QP was in error already; look at the first completion that failed',
  BAD_RESP_ERR: 'the peer answered with something that was not asked for',
  LOC_ACCESS_ERR: 'the local region does not allow the access',
  REM_INV_REQ_ERR: 'the peer could not accept the request: too long for its receive, or of a kind it does not take',
  REM_ACCESS_ERR:
    'the rkey was wrong, revoked or of another peer, the range outside its region, or the access not allowed',
  REM_OP_ERR: 'the peer failed while it carried the request out',
  RETRY_EXC_ERR: 'the peer did not answer: it is gone, not connected, or the path is broken',
  RNR_RETRY_EXC_ERR: 'the peer had no receive posted, and still had none after all retries',
  REM_ABORT_ERR: 'the peer aborted the operation',
  FATAL_ERR: 'the device failed',
  RESP_TIMEOUT_ERR: 'the peer took too long to answer',
  GENERAL_ERR: 'the device gave no reason',
};

/** Where a poll puts completions. Reused for every poll; nothing is allocated. */
export class CompletionBatch implements Disposable {
  readonly memory: SharedMemory;
  readonly words: Uint32Array;
  readonly capacity: number;

  constructor(capacity = 64) {
    if (!Number.isInteger(capacity) || capacity < 1 || capacity > 65_536) {
      throw new UsageError(`a batch of ${capacity} completions: expected 1 to 65536`);
    }
    this.capacity = capacity;
    this.memory = SharedMemory.create({ sizeBytes: capacity * completionRow.words * 4, name: 'completions' });
    this.words = new Uint32Array(this.memory.buffer);
  }

  wrId(index: number): number {
    return read64(this.words, index * completionRow.words + completionRow.wrId);
  }

  /** A number of `completionStatuses`; 0 is success. */
  status(index: number): number {
    return this.words[index * completionRow.words + completionRow.status];
  }

  /** A number of `completionOpcodes`. */
  opcode(index: number): number {
    return this.words[index * completionRow.words + completionRow.opcode];
  }

  /** Bytes received, read, or fetched. */
  byteLength(index: number): number {
    return this.words[index * completionRow.words + completionRow.byteLength];
  }

  hasImm(index: number): boolean {
    return (this.words[index * completionRow.words + completionRow.flags] & completionFlags.hasImm) !== 0;
  }

  imm(index: number): number {
    return this.words[index * completionRow.words + completionRow.imm];
  }

  qpNumber(index: number): number {
    return this.words[index * completionRow.words + completionRow.qpNumber];
  }

  /** UD: the QP that sent it. */
  sourceQp(index: number): number {
    return this.words[index * completionRow.words + completionRow.sourceQp];
  }

  toCompletion(index: number): Completion {
    return {
      wrId: this.wrId(index),
      status: statusName(this.status(index)),
      opcode: (opcodeNames.get(this.opcode(index)) ?? 'send') as CompletionOpcode,
      byteLength: this.byteLength(index),
      qpNumber: this.qpNumber(index),
      ...(this.hasImm(index) && { imm: this.imm(index) }),
    };
  }

  close(): void {
    this.memory.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
