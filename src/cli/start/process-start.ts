// What this process was started with and Node does not tell, or has changed before our code runs:
// ignored signals, the limit of open files, descriptors and their flags, and arguments
// as bytes. It loads nothing but node:fs.

import { constants, readdirSync, readFileSync, readlinkSync } from 'node:fs';

/** Of file status flags, those that say whether it may be read or written. */
const O_ACCMODE = 3;

export interface Started {
  readonly ignoredSignals: readonly number[];
  /** Soft limit of open files, which Node raises. */
  readonly openFiles: number;
}

/**
 * File status flags of 0, 1 and 2 when this module was loaded; negative: closed. A stream that Node
 * makes of a pipe or a socket is non-blocking, for all that share it.
 */
export const stdioFlags: readonly number[] = [0, 1, 2].map((fd) => {
  try {
    return flagsOf(fd) ?? -1;
  } catch {
    return -1;
  }
});

type Env = Readonly<Record<string, string | undefined>>;

/**
 * `MILLRACE_START`, which the script `millrace` of a checkout sets before it starts Node: the
 * limit, and the mask of ignored signals in hexadecimal. Without it no signal was ignored, as is
 * usual, and the limit was the parent's, if that has the same hard limit.
 */
export function startedWith(env: Env, limitsOf: (who: number | 'self') => string = readLimits): Started {
  const [, limit, ignored] = /^(\d+|unlimited) ([0-9a-f]+)$/.exec(env.MILLRACE_START ?? '') ?? [];
  return {
    ignoredSignals: signalsOf(ignored),
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
  const open = readdirSync('/proc/self/fd').flatMap((name) => {
    try {
      const isWritable = ((flagsOf(name) ?? 0) & O_ACCMODE) !== constants.O_RDONLY;
      return [{ fd: Number(name), target: readlinkSync(`/proc/self/fd/${name}`), isWritable }];
    } catch {
      // The one that lists the folder is closed again.
      return [];
    }
  });
  const isNodes = (each: (typeof open)[number]): boolean =>
    each.target.startsWith('anon_inode:') ||
    each.target === '/dev/null' ||
    (each.target.startsWith('pipe:') &&
      open.some(({ target, isWritable }) => target === each.target && isWritable !== each.isWritable));
  return open.filter((each) => each.fd > 2 && !isNodes(each)).map(({ fd }) => fd);
}

function flagsOf(fd: number | string): number | undefined {
  const octal = /^flags:\s*([0-7]+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, 'utf8'))?.[1];
  return octal === undefined ? undefined : Number.parseInt(octal, 8);
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
