// userfaultfd: which one this user gets, and what this kernel's can do.

import { constants } from 'node:fs';
import { SystemError } from '../errors.ts';
import { addon } from './addon.ts';
import { Fd } from './fd.ts';
import { check } from './result.ts';

const UFFD_USER_MODE_ONLY = 1;

/**
 * Bits of uffdio_api.features; see userfaultfd(2). Faults on missing anonymous pages are always
 * served.
 */
const featureBits = {
  writeProtect: 1 << 0,
  missingHugetlb: 1 << 4,
  missingShmem: 1 << 5,
  minorHugetlb: 1 << 9,
  minorShmem: 1 << 10,
  exactAddress: 1 << 11,
  writeProtectShared: 1 << 12,
  poison: 1 << 14,
  move: 1 << 16,
} as const;

export type UserfaultFeature = keyof typeof featureBits;

export interface UserfaultOptions {
  /** Whose faults are served: `all` also those of system calls, which needs a privilege. */
  readonly faults: 'all' | 'user-mode';
  /** `syscall`: decided by privilege; `device`: by the file permissions of /dev/userfaultfd. */
  readonly by: 'syscall' | 'device';
}

/** A descriptor that reports page faults of this process. */
export class UserfaultFd extends Fd {
  static create(options: UserfaultOptions): UserfaultFd {
    const flags = options.faults === 'all' ? 0 : UFFD_USER_MODE_ONLY;
    const what = `${options.faults} faults`;
    if (options.by === 'syscall') return new UserfaultFd(check(addon.userfaultCreate(flags), 'userfaultfd', what));
    using device = Fd.open('/dev/userfaultfd', constants.O_RDWR);
    return new UserfaultFd(check(addon.userfaultCreateByDevice(device.fd, flags), 'USERFAULTFD_IOC_NEW', what));
  }

  /** Must be the first call on it, once. Asks for no feature; returns those the kernel has. */
  handshake(): ReadonlySet<UserfaultFeature> {
    const bits = check(addon.userfaultHandshake(this.fd, 0), 'UFFDIO_API');
    return new Set(userfaultFeatures.filter((name) => (bits & featureBits[name]) !== 0));
  }
}

const userfaultFeatures = Object.keys(featureBits) as readonly UserfaultFeature[];

/**
 * The best userfaultfd this user may have, with how it was made; throws the last refusal when there
 * is none.
 */
export function createBestUserfault(): { readonly fd: UserfaultFd; readonly options: UserfaultOptions } {
  let refusal: unknown;
  for (const faults of ['all', 'user-mode'] as const) {
    for (const by of ['syscall', 'device'] as const) {
      try {
        return { fd: UserfaultFd.create({ faults, by }), options: { faults, by } };
      } catch (error) {
        if (!(error instanceof SystemError)) throw error;
        refusal = error;
      }
    }
  }
  throw refusal;
}
