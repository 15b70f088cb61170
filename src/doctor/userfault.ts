// Which userfaultfd this user gets: whose page faults it serves, and with which features.

import { createBestUserfault, type UserfaultFeature, type UserfaultOptions } from '../native/index.ts';
import { answer, type Finding, type Outcome, outcomeOfError, type Question } from './finding.ts';
import { isSystemError } from './system-error.ts';

const faults: Question = {
  id: 'userfaultfd',
  group: 'memory',
  title: 'userfaultfd',
  neededBy: ['vortex'],
  consequence: 'streams cannot be offered as plain memory; they work as iterators and as Node streams',
  fix: 'use a kernel with CONFIG_USERFAULTFD=y',
};

const kernelFaults: Question = {
  id: 'userfaultfd-kernel-faults',
  group: 'memory',
  title: 'userfaultfd for system calls',
  neededBy: [],
  improves: ['vortex'],
  consequence:
    'system calls into a stream (fs.readSync straight into it) fail with EFAULT; plain reads and writes work',
  fix: 'give the user access to /dev/userfaultfd or CAP_SYS_PTRACE, or set sysctl vm.unprivileged_userfaultfd=1',
};

/** The features that streams use. */
const featureTexts: readonly (readonly [UserfaultFeature, string])[] = [
  ['missingShmem', 'shared memory'],
  ['missingHugetlb', 'huge pages'],
  ['minorShmem', 'minor faults'],
  ['writeProtect', 'write protection'],
];

export interface UserfaultTrial {
  readonly options: UserfaultOptions;
  readonly features: ReadonlySet<UserfaultFeature>;
}

function tryUserfault(): UserfaultTrial {
  const { fd, options } = createBestUserfault();
  using userfault = fd;
  return { options, features: userfault.handshake() };
}

export async function probeUserfault(signal?: AbortSignal, trial = tryUserfault): Promise<readonly Finding[]> {
  let best: UserfaultTrial | null = null;
  const first = await answer(
    faults,
    () => {
      try {
        best = trial();
        return { answer: 'yes', detail: describe(best) };
      } catch (error) {
        return outcomeOfRefusal(error);
      }
    },
    signal,
  );
  const second = await answer(kernelFaults, () => outcomeOfKernelFaults(best), signal);
  return [first, second];
}

function describe({ options, features }: UserfaultTrial): string {
  const by = options.by === 'syscall' ? '' : 'by /dev/userfaultfd: ';
  const texts = featureTexts.filter(([name]) => features.has(name)).map(([, text]) => text);
  return by + (texts.length === 0 ? 'anonymous memory only' : texts.join(', '));
}

function outcomeOfRefusal(error: unknown): Outcome {
  if (isSystemError(error, 'ENOSYS', 'ENOENT')) return { answer: 'no', detail: error.message };
  const fix = 'give the user access to /dev/userfaultfd; in a container, allow the userfaultfd system call';
  return isSystemError(error, 'EPERM', 'EACCES') ? { ...outcomeOfError(error), fix } : outcomeOfError(error);
}

function outcomeOfKernelFaults(best: UserfaultTrial | null): Outcome {
  if (best === null) return { answer: 'unknown', detail: 'there is no userfaultfd to ask' };
  if (best.options.faults === 'all') return { answer: 'yes', detail: 'faults of system calls are served too' };
  return { answer: 'no', detail: 'only faults of the program itself (UFFD_USER_MODE_ONLY)', isForbidden: true };
}
