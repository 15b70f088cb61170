// What this process was started with and Node does not tell, or has changed before our code runs:
// ignored and blocked signals, the limit of open files, descriptors, and arguments as bytes.

import { readdirSync, readFileSync, readlinkSync } from 'node:fs';

export interface Started {
  readonly ignoredSignals: readonly number[];
  readonly blockedSignals: readonly number[];
  /** Soft limit of open files, which Node raises. */
  readonly openFiles: number;
}

type Env = Readonly<Record<string, string | undefined>>;

/**
 * `MILLRACE_START`, which the script `millrace` of a checkout sets before it starts Node: the
 * limit, and the masks of blocked and of ignored signals in hexadecimal. Without it no signal was
 * blocked or ignored, as is usual, and the limit was the parent's, if that has the same hard limit.
 */
export function startedWith(env: Env, limitsOf: (who: number | 'self') => string = readLimits): Started {
  const [limit, blocked, ignored] =
    /^(\d+|unlimited) ([0-9a-f]+) ([0-9a-f]+)$/.exec(env.MILLRACE_START ?? '')?.slice(1) ?? [];
  return {
    ignoredSignals: signalsOf(ignored),
    blockedSignals: signalsOf(blocked),
    openFiles: limit === undefined ? inheritedLimit(limitsOf) : countOf(limit),
  };
}

/** In the kernel's masks, bit 0 is signal 1. */
function signalsOf(mask = '0'): readonly number[] {
  const bits = BigInt(`0x${mask}`);
  return Array.from({ length: 64 }, (_, index) => index + 1).filter((signal) => (bits >> BigInt(signal - 1)) & 1n);
}

function inheritedLimit(limitsOf: (who: number | 'self') => string): number {
  const [own, parent] = [limitsOf('self'), limitsOf(process.ppid)].map(
    (text) => /^Max open files +(\S+) +(\S+)/m.exec(text) ?? [],
  );
  return countOf(own?.[2] !== undefined && own[2] === parent?.[2] ? parent[1] : own?.[1]);
}

function countOf(limit = 'unlimited'): number {
  return limit === 'unlimited' ? Number.MAX_SAFE_INTEGER : Number(limit);
}

function readLimits(who: number | 'self'): string {
  try {
    return readFileSync(`/proc/${who}/limits`, 'utf8');
  } catch {
    // The parent has ended.
    return '';
  }
}

/**
 * Descriptors from 3 on that were open before Node started, which has set close-on-exec for them.
 * Node's own cannot be told for certain: they are event queues and the like, pipes of which it has
 * both ends, and a spare /dev/null.
 */
export function inheritedFds(): readonly number[] {
  const targets = readdirSync('/proc/self/fd').flatMap((name) => {
    try {
      return [{ fd: Number(name), target: readlinkSync(`/proc/self/fd/${name}`) }];
    } catch {
      // The one that lists the folder is closed again.
      return [];
    }
  });
  const isNodes = (target: string): boolean =>
    target.startsWith('anon_inode:') ||
    target === '/dev/null' ||
    (target.startsWith('pipe:') && targets.filter((other) => other.target === target).length > 1);
  return targets.filter(({ fd, target }) => fd > 2 && !isNodes(target)).map(({ fd }) => fd);
}

/**
 * The last arguments of this process as bytes, which need not be UTF-8; `words` is how Node decoded
 * them.
 */
export function wordsAsGiven(
  words: readonly string[],
  commandLine: Uint8Array = readFileSync('/proc/self/cmdline'),
): readonly Uint8Array[] {
  const given: Uint8Array[] = [];
  for (let start = 0, end = commandLine.indexOf(0); end >= 0; start = end + 1, end = commandLine.indexOf(0, start)) {
    given.push(commandLine.subarray(start, end));
  }
  const last = given.slice(-words.length);
  const decoder = new TextDecoder();
  const isSame = last.length === words.length && last.every((bytes, index) => decoder.decode(bytes) === words[index]);
  return isSame ? last : words.map((word) => Buffer.from(word));
}
