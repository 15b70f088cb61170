// Guests: whether KVM really runs one, and whether there is a QEMU to run them with.

import { type KvmTrial, tryKvmGuest } from '../native/index.ts';
import { answer, type Finding, type Question } from './finding.ts';
import type { Machine } from './machine.ts';
import { isSystemError } from './system-error.ts';
import { toolQuestion } from './tools.ts';

const kvm: Question = {
  id: 'kvm',
  group: 'virtual machines',
  title: 'KVM',
  neededBy: [],
  improves: ['vm'],
  consequence: 'guests are emulated (qemu -accel tcg), ten times slower or more',
  fix: 'use a machine with virtualization switched on, or nested virtualization in its hypervisor',
};

const qemu = toolQuestion({
  id: 'qemu',
  group: 'virtual machines',
  title: 'QEMU',
  neededBy: ['vm'],
  consequence: 'no guests can be run; remoting still works between processes and containers',
  fix: 'apt-get install qemu-system-x86',
  commands: ['qemu-system-x86_64'],
});

export type TryGuest = () => KvmTrial;

export async function probeVirtualization(
  machine: Machine,
  signal?: AbortSignal,
  tryGuest: TryGuest = tryKvmGuest,
): Promise<readonly Finding[]> {
  return [await probeKvm(tryGuest, signal), await qemu(machine, signal)];
}

async function probeKvm(tryGuest: TryGuest, signal?: AbortSignal): Promise<Finding> {
  return answer(
    kvm,
    () => {
      try {
        const trial = tryGuest();
        if (trial.ran) return { answer: 'yes', detail: 'a 64-bit guest ran and took an exception' };
        if (trial.isTimeout) return { answer: 'unknown', detail: `${trial.step}: no answer within a second` };
        return { answer: 'no', detail: `${trial.step}: ${trial.reason}` };
      } catch (error) {
        if (isSystemError(error, 'ENOENT', 'ENODEV', 'ENXIO')) return { answer: 'no', detail: error.message };
        if (!isSystemError(error, 'EACCES', 'EPERM')) throw error;
        return { answer: 'unknown', detail: error.message, isForbidden: true, fix: 'add the user to the group kvm' };
      }
    },
    signal,
  );
}
