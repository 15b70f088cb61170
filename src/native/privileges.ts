// What the threads of this process may do: their capabilities, read from the kernel and given up
// for good.

import { readdirSync, readFileSync } from 'node:fs';
import { constants } from 'node:os';
import { MillraceError, SystemError } from '../errors.ts';
import { addon } from './addon.ts';
import { check } from './result.ts';

/** In the order of their numbers in <linux/capability.h>. */
const capabilityNames = [
  'CAP_CHOWN',
  'CAP_DAC_OVERRIDE',
  'CAP_DAC_READ_SEARCH',
  'CAP_FOWNER',
  'CAP_FSETID',
  'CAP_KILL',
  'CAP_SETGID',
  'CAP_SETUID',
  'CAP_SETPCAP',
  'CAP_LINUX_IMMUTABLE',
  'CAP_NET_BIND_SERVICE',
  'CAP_NET_BROADCAST',
  'CAP_NET_ADMIN',
  'CAP_NET_RAW',
  'CAP_IPC_LOCK',
  'CAP_IPC_OWNER',
  'CAP_SYS_MODULE',
  'CAP_SYS_RAWIO',
  'CAP_SYS_CHROOT',
  'CAP_SYS_PTRACE',
  'CAP_SYS_PACCT',
  'CAP_SYS_ADMIN',
  'CAP_SYS_BOOT',
  'CAP_SYS_NICE',
  'CAP_SYS_RESOURCE',
  'CAP_SYS_TIME',
  'CAP_SYS_TTY_CONFIG',
  'CAP_MKNOD',
  'CAP_LEASE',
  'CAP_AUDIT_WRITE',
  'CAP_AUDIT_CONTROL',
  'CAP_SETFCAP',
  'CAP_MAC_OVERRIDE',
  'CAP_MAC_ADMIN',
  'CAP_SYSLOG',
  'CAP_WAKE_ALARM',
  'CAP_BLOCK_SUSPEND',
  'CAP_AUDIT_READ',
  'CAP_PERFMON',
  'CAP_BPF',
  'CAP_CHECKPOINT_RESTORE',
] as const;

export type CapabilityName = (typeof capabilityNames)[number];

/** A thread as /proc shows it. The sets are bit masks. */
interface ThreadPrivileges {
  readonly thread: number;
  readonly name: string;
  readonly sets: Readonly<Record<(typeof setNames)[number], bigint>>;
  readonly hasNoNewPrivileges: boolean;
}

const setNames = ['CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb'] as const;

/** Threads may start others while they are told, so the list is read again. */
const MAX_ROUNDS = 10;
const ANSWER_NS = 2e9;
const { ESRCH, ETIMEDOUT } = constants.errno;

/**
 * All threads of this process, and those that they start, keep these capabilities at most and can
 * gain none. Throws when one could not be limited; what could be given up then is.
 */
export function limitPrivileges(keep: readonly CapabilityName[]): void {
  const mask = keep.reduce((sum, name) => sum | (1n << BigInt(capabilityNames.indexOf(name))), 0n);
  const [low, high] = [Number(mask & 0xffffffffn), Number(mask >> 32n)];
  const problems = new Map<number, number>();
  for (let round = 0; round < MAX_ROUNDS; round++) {
    const tooMany = threadPrivileges().filter((one) => hasMore(one, mask));
    if (tooMany.length === 0) return;
    for (const { thread } of tooMany) {
      const result = addon.limitThread(thread, low, high, ANSWER_NS);
      if (result !== 0 && result !== -ESRCH) problems.set(thread, result);
    }
    // What was refused once is refused again.
    if (tooMany.every(({ thread }) => (problems.get(thread) ?? -ETIMEDOUT) !== -ETIMEDOUT)) break;
  }
  const left = threadPrivileges().filter((one) => hasMore(one, mask));
  const [first] = left;
  if (first === undefined) return;
  const result = problems.get(first.thread);
  const why = result === undefined ? '' : `: ${new SystemError(result, 'capset').code}`;
  const which = `${left.length} threads, the first ${first.name} (${first.thread})`;
  const extra = capabilityNamesOf(setNames.reduce((sum, name) => sum | first.sets[name], 0n) & ~mask);
  throw new MillraceError('MILLRACE_ERR_FAILED', `give up ${extra.join(' ')} in ${which}${why}`);
}

/** Other processes of the same user cannot look into this one, and it leaves no core dump. */
export function forbidDumps(): void {
  check(addon.forbidDumps(), 'prctl', 'PR_SET_DUMPABLE');
}

/** Of a process, by default this one. Threads that end meanwhile are left out. */
export function threadPrivileges(pid: number | 'self' = 'self'): readonly ThreadPrivileges[] {
  return readdirSync(`/proc/${pid}/task`).flatMap((thread) => {
    const status = readStatus(`/proc/${pid}/task/${thread}/status`);
    return status === undefined ? [] : [parseStatus(Number(thread), status)];
  });
}

/** The names of the capabilities in a mask; numbers that are not known here are shown as such. */
export function capabilityNamesOf(mask: bigint): readonly string[] {
  const numbers = Array.from({ length: 64 }, (_, number) => number);
  return numbers
    .filter((number) => (mask >> BigInt(number)) & 1n)
    .map((number) => capabilityNames[number] ?? `capability ${number}`);
}

function readStatus(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    // ESRCH: it ended between open and read.
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ESRCH') return undefined;
    throw error;
  }
}

function parseStatus(thread: number, status: string): ThreadPrivileges {
  const field = (name: string): string => new RegExp(`^${name}:\\s*(.*)$`, 'm').exec(status)?.[1] ?? '0';
  const sets = Object.fromEntries(setNames.map((name) => [name, BigInt(`0x${field(name)}`)]));
  return {
    thread,
    name: field('Name'),
    sets: sets as ThreadPrivileges['sets'],
    hasNoNewPrivileges: field('NoNewPrivs') === '1',
  };
}

function hasMore({ sets, hasNoNewPrivileges }: ThreadPrivileges, keep: bigint): boolean {
  const { CapInh, CapAmb, CapPrm, CapEff, CapBnd } = sets;
  return !hasNoNewPrivileges || (CapInh | CapAmb | ((CapPrm | CapEff | CapBnd) & ~keep)) !== 0n;
}
