// Whether guests run on the processor (KVM) or are emulated (TCG).

import { tryKvmGuest } from '../../native/index.ts';

export type Accelerator = 'kvm' | 'tcg';

let known: Accelerator | null = null;

/** KVM if it runs a test guest: some hosts have the device and refuse ordinary guests. */
export function accelerator(): Accelerator {
  known ??= hasKvm() ? 'kvm' : 'tcg';
  return known;
}

function hasKvm(): boolean {
  try {
    return tryKvmGuest().ran;
  } catch {
    return false;
  }
}
