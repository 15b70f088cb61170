// The types of values in a config. The message of each completes the sentence "give …".

import { isIP } from 'node:net';
import { z } from 'zod';
import { parseAcceptLines, parseRules } from '../steering/index.ts';
import {
  didYouMean,
  formatSize,
  isNodeName,
  isPowerOfTwo,
  parseHostPort,
  parseSize,
  sizePattern,
} from '../text/index.ts';

/** The port that daemons dial, unless a peer's address names another. */
export const DEFAULT_CONTROL_PORT = 4790;
const softDevices = ['soft-shm', 'soft-roce', 'soft-tcp'] as const;

export function whole(first: number, last: number, error = `a whole number from ${first} to ${last}`) {
  return z.int({ error }).min(first, { error }).max(last, { error });
}

export function wholeOrAuto(first: number, last: number) {
  const error = `auto or a whole number from ${first} to ${last}`;
  return z.union([z.literal('auto'), whole(first, last, error)], { error });
}

/** Seconds may have a fraction. */
export function seconds(first: number, last: number) {
  const error = `a number of seconds from ${first} to ${last}`;
  return z.number({ error }).min(first, { error }).max(last, { error });
}

export function flag() {
  return z.boolean({ error: 'true or false' });
}

export function oneOf<const T extends readonly string[]>(...words: T) {
  return z.enum(words, { error: `one of ${words.join(', ')}` });
}

interface SizeLimits {
  readonly least: number;
  readonly most: number;
  readonly powerOfTwo?: boolean;
}

/** A number of bytes, given as a number or as 64KiB, 4MiB, 1GiB. */
export function size({ least, most, powerOfTwo = false }: SizeLimits) {
  const kind = powerOfTwo ? 'a power of two' : 'a size';
  const error = `${kind} from ${formatSize(least)} to ${formatSize(most)}`;
  return z.union([z.int({ error }), z.string({ error }).regex(sizePattern)], { error }).transform((given, context) => {
    const bytes = parseSize(given);
    if (bytes >= least && bytes <= most && (!powerOfTwo || isPowerOfTwo(bytes))) return bytes;
    context.addIssue({ code: 'custom', message: error });
    return z.NEVER;
  });
}

export function text(error: string, check: (text: string) => boolean = (given) => given !== '') {
  return z.string({ error }).refine(check, { error });
}

export function file(what: string) {
  return text(`the file with ${what}`, (given) => given !== '' && !given.includes('\0'));
}

export const nodeName = () =>
  text('up to 63 letters, digits, dots, dashes and underscores, a letter or digit first', isNodeName);

export const instanceName = () =>
  text('up to 32 of a-z, 0-9 and -, no dash first or last', (given) =>
    /^[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?$/.test(given),
  );

export const cgroup = () =>
  text('a path from the root of cgroup v2, as / or /demo', (given) => given.startsWith('/') && !given.includes('\0'));

export const port = () => whole(0, 65_535);

export const address = () => text('an IP address, as 10.0.0.1 or fd00::1', (given) => isIP(given) !== 0);

export const ownAddress = () =>
  text(
    'one address of this host, no wildcard: programs are steered to it',
    (given) => isIP(given) !== 0 && !/^[0:.]+$/.test(given),
  );

export const peerAddress = () =>
  placed('a host with or without a port, as 10.0.0.2, b.example:4790 or [fd00::2]:4790', DEFAULT_CONTROL_PORT);

export const httpAddress = () => placed('an address and a port, as 127.0.0.1:4792');

function placed(error: string, defaultPort?: number) {
  return z.string({ error }).transform((given, context) => {
    const place = parseHostPort(given, defaultPort);
    if (place !== null) return place;
    context.addIssue({ code: 'custom', message: error });
    return z.NEVER;
  });
}

/**
 * One rule as `millrace steer` takes it. It stays text: it is parsed again where cgroups are looked
 * up.
 */
export const rule = () => line('rule', 'connect to 10.0.0.0/8', parseRules);

/** Which peers may reach which listeners. It stays text, as rules do. */
export const acceptLine = () => line('accept line', 'accept from web-* to any:6379', parseAcceptLines);

function line(kind: string, example: string, parse: (text: string) => readonly object[]) {
  const error = `one ${kind} per item, as '${example}'`;
  return z.string({ error }).superRefine((text, context) => {
    try {
      if (parse(text).length !== 1) context.addIssue({ code: 'custom', message: error });
    } catch (problem) {
      context.addIssue({ code: 'custom', message: (problem as Error).message, params: { isWhole: true } });
    }
  });
}

/**
 * Names that start with `soft` are soft devices; others, such as mlx5_0, are libibverbs devices.
 */
export const deviceName = () =>
  z.string({ error: `${softDevices.join(', ')} or the name of a device` }).superRefine((name, context) => {
    const isSoft = name.startsWith('soft');
    if (isSoft ? softDevices.some((known) => known === name) : /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/.test(name)) return;
    const hint = isSoft ? didYouMean(name, softDevices) : '';
    context.addIssue({
      code: 'custom',
      message: `${softDevices.join(', ')} or the name of a libibverbs device, as mlx5_0${hint}`,
    });
  });

export const etcdEndpoint = () =>
  text('a URL without a path, as http://127.0.0.1:2379', (given) => {
    const url = URL.parse(given);
    return (
      url !== null &&
      /^https?:$/.test(url.protocol) &&
      `${url.pathname}${url.search}${url.hash}` === '/' &&
      url.username === ''
    );
  });
