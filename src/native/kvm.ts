// Whether KVM really runs a guest: a tiny one is run, in a child process that cannot outlive its
// second.

import { constants } from 'node:fs';
import { SystemError } from '../errors.ts';
import { addon } from './addon.ts';
import { Fd } from './fd.ts';
import { checkValue } from './result.ts';

/** The steps of native/kvm.c, by number. */
const steps = [
  'start',
  'create a virtual machine',
  'set its memory',
  'create a vCPU',
  'set registers',
  'run it',
] as const;
const KVM_EXIT_INTERNAL_ERROR = 17;

export type KvmTrial =
  | { readonly ran: true }
  | { readonly ran: false; readonly step: string; readonly reason: string; readonly isTimeout: boolean };

/** Throws when the device does not open. */
export function tryKvmGuest(path = '/dev/kvm'): KvmTrial {
  using device = Fd.open(path, constants.O_RDWR);
  const [step, errno, exitReason] = checkValue(addon.kvmTryGuest(device.fd), 'fork');
  if (step === steps.length) return { ran: true };
  const name = steps[step] ?? `step ${step}`;
  if (errno === 0) return { ran: false, step: name, reason: exitText(exitReason), isTimeout: false };
  const { code } = new SystemError(-errno, 'ioctl');
  return { ran: false, step: name, reason: code, isTimeout: code === 'ETIMEDOUT' };
}

function exitText(exitReason: number): string {
  if (exitReason === KVM_EXIT_INTERNAL_ERROR) return 'the host does not run ordinary guests (KVM_EXIT_INTERNAL_ERROR)';
  return `the guest stopped with exit reason ${exitReason}`;
}
