// What libibverbs and its devices refuse, in words: the attempt, the errno, and what to do about
// it.

import { readFileSync } from 'node:fs';
import { constants } from 'node:os';
import { getSystemErrorMessage } from 'node:util';
import { SystemError, UsageError } from '../../errors.ts';

const { EACCES, EAGAIN, EINVAL, ENODATA, ENOMEM, ENOSYS, EPERM, ETIMEDOUT, EHOSTUNREACH, ENETUNREACH } =
  constants.errno;
const { E2BIG, EDESTADDRREQ, EFAULT, EMSGSIZE, EOPNOTSUPP } = constants.errno;
const ENOTSUPP = 524; // the kernel's own, which user space has no name for

/** `hint`: what to do, where that is known. */
export function verbsError(errno: number, call: string, attempt: string, hint?: string): SystemError {
  const named = errno === -ENOTSUPP ? -EOPNOTSUPP : errno;
  const words = [`${attempt}: ${getSystemErrorMessage(named) ?? 'unknown'}`, ...(hint === undefined ? [] : [hint])];
  return new SystemError(named, call, words.join('; '));
}

export function checkVerbs(result: number, call: string, attempt: () => string): number {
  if (result < 0) throw verbsError(result, call, attempt(), openHint(result));
  return result;
}

export function checkMade<T extends object>(result: T | number, call: string, attempt: () => string): T {
  if (typeof result === 'number') throw verbsError(result, call, attempt(), openHint(result));
  return result;
}

/**
 * Hints when an object cannot be made: devices limit their number, and users may lock so much
 * memory.
 */
function openHint(errno: number): string | undefined {
  if (errno === -ENOMEM || errno === -EAGAIN) {
    return `the device has no more of them, or ${lockedMemory() ?? 'memory is short'}`;
  }
  if (errno === -EPERM || errno === -EACCES) return 'may this user open /dev/infiniband/uverbs*?';
  return undefined;
}

export function registerHint(errno: number): string | undefined {
  if (errno === -ENOMEM || errno === -EAGAIN || errno === -EPERM) return lockedMemory();
  if (errno === -EFAULT) return 'the memory is mapped for reading only';
  return errno === -EOPNOTSUPP ? 'the device does not take memory of this kind' : undefined;
}

/** Hints when a step to RTR fails: the kernel does not tell the causes apart. */
export function stepHint(
  errno: number,
  facts: { readonly gidIndex: number; readonly peer: string },
): string | undefined {
  if (errno === -EINVAL) {
    return `is GID index ${facts.gidIndex} of this port the right one for ${facts.peer}, and are MTU and read limits within the device's?`;
  }
  if (errno === -ENODATA) return `GID index ${facts.gidIndex} of this port is empty; see: millrace dev`;
  if (errno === -ETIMEDOUT || errno === -EHOSTUNREACH || errno === -ENETUNREACH) {
    return `no way from GID index ${facts.gidIndex} to ${facts.peer}: check the address, the route and the GID index`;
  }
  return errno === -ENOSYS ? 'the device has no such step' : undefined;
}

function lockedMemory(): string | undefined {
  const limit = lockedMemoryLimit();
  if (limit === undefined) return undefined;
  if (limit === Number.POSITIVE_INFINITY) return 'locked memory is not limited, so the system has none to pin';
  return `the locked-memory limit is ${mebibytes(limit)}; raise LimitMEMLOCK or ulimit -l`;
}

export function mebibytes(bytes: number): string {
  return bytes < 1 << 20 ? `${Math.ceil(bytes / 1024)} KiB` : `${Math.round((bytes / 2 ** 20) * 10) / 10} MiB`;
}

/** In bytes. */
export function lockedMemoryLimit(limits: string = readLimits()): number | undefined {
  const soft = /^Max locked memory\s+(\S+)/m.exec(limits)?.[1];
  if (soft === undefined) return undefined;
  return soft === 'unlimited' ? Number.POSITIVE_INFINITY : Number(soft);
}

function readLimits(): string {
  try {
    return readFileSync('/proc/self/limits', 'utf8');
  } catch {
    return '';
  }
}

/** Why a queue did not take all rows of a batch. */
interface Refusal {
  readonly errno: number;
  /** `send request` or `receive`. */
  readonly what: string;
  /** In the batch. */
  readonly row: number;
  readonly queue: string;
  readonly maxSge: number;
  readonly maxInlineBytes?: number;
}

/** Whether the queue was just full, so that the rest can be posted later. */
export function isFull(errno: number): boolean {
  return errno === -ENOMEM;
}

export function refusalError(refusal: Refusal): Error {
  const { errno, what, row, queue } = refusal;
  const attempt = `post ${what} ${row} of a batch to ${queue}`;
  const reason = wrongRow(refusal);
  return reason === undefined ? verbsError(errno, 'ibv_post_send', attempt) : new UsageError(`${attempt}: ${reason}`);
}

function wrongRow({ errno, maxSge, maxInlineBytes = 0 }: Refusal): string | undefined {
  switch (-errno) {
    case E2BIG:
      return `it has more scatter-gather entries than the ${maxSge} of this queue`;
    case EMSGSIZE:
      return `its inline data is longer than the ${maxInlineBytes} bytes of this QP`;
    case EFAULT:
      return 'its inline data is in no memory of this thread';
    case EOPNOTSUPP:
      return 'this kind of QP has no such operation';
    case EDESTADDRREQ:
      return 'it has no address handle of the same protection domain';
    case EINVAL:
      return 'the device finds it malformed';
    default:
      return undefined;
  }
}
