// Whether guests run on the processor or are interpreted.

import { tryKvmGuest } from '../../native/index.ts';

export type Accelerator = 'kvm' | 'tcg';

let known: Accelerator | null = null;

/** KVM where it really runs a guest: some hosts have the device and refuse ordinary ones. */
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
