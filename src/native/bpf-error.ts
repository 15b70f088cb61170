// Errors of libbpf and of the kernel's verifier, with their log.

import { constants } from 'node:os';
import { SystemError, UnsupportedError } from '../errors.ts';
import { addon } from './addon.ts';

const ENOTSUPP = 524; // the kernel's own, which user space has no name for
const LIBBPF_ERRNO_START = 4000; // libbpf's own: all of them mean that the object is invalid

/** An object that does not open or load. The message names the reason; `log` has everything. */
export class BpfError extends SystemError {
  /** libbpf's warnings, which include the verifier's log of each refused program. */
  readonly log: string;

  constructor(errno: number, syscall: string, what: string, log: string) {
    const reason = bpfReason(log);
    super(nameableErrno(errno), syscall, reason === '' ? what : `${what}: ${reason}`);
    this.name = 'BpfError';
    this.log = log;
  }
}

/** Errnos that have a name everywhere. */
export function nameableErrno(errno: number): number {
  if (errno <= -LIBBPF_ERRNO_START) return -constants.errno.EINVAL;
  return errno === -ENOTSUPP ? -constants.errno.ENOTSUP : errno;
}

/** The line of a log with the reason: the verifier's last, or else libbpf's first. */
export function bpfReason(log: string): string {
  const lines = log.split('\n').map((line) => line.trim());
  const begin = lines.findIndex((line) => line.includes('-- BEGIN PROG LOAD LOG --'));
  if (begin >= 0) {
    const end = lines.findIndex((line, at) => at > begin && line.includes('-- END PROG LOAD LOG --'));
    const said = lines.slice(begin + 1, end < 0 ? undefined : end);
    const last = said.findLast((line) => line !== '' && !line.startsWith('processed '));
    if (last !== undefined) return last;
  }
  return (lines.find((line) => line !== '') ?? '').replace(/^libbpf: /, '');
}

/** libbpf is opened at run time; without it nothing of BPF works, and everything else does. */
export function requireLibbpf(attempt: string): void {
  if (addon.bpfIsAvailable()) return;
  throw new UnsupportedError(`${attempt}: there is no libbpf.so.1 here; install the Debian package libbpf1`);
}
