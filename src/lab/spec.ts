// The spec of a lab as plain data: its hosts, their addresses, MTU, delay and loss.

import { UsageError } from '../errors.ts';
import { didYouMean } from '../text/index.ts';

export interface SpecOptions {
  /** The largest IP packet in bytes, 1280 to 65535. Default 1500. */
  readonly mtu?: number;
  /** Added to every packet in each direction, so a round trip takes twice as long. */
  readonly delayMs?: number;
  /** Share of packets lost in each direction, 0 to 100. */
  readonly lossPercent?: number;
  /** Names, or how many, which are then called a, b, c… Default: two. */
  readonly hosts?: number | readonly string[];
  /** A name for people; a lab always has an id as well. */
  readonly name?: string;
}

/**
 * Checked, with the defaults filled in. The names of all kernel objects follow from the spec and
 * the id.
 */
export interface LabSpec {
  readonly name: string | null;
  readonly hosts: readonly string[];
  readonly mtu: number;
  readonly delayMs: number;
  readonly lossPercent: number;
}

export interface Addresses {
  readonly ipv4: string;
  readonly ipv6: string;
}

export const hostLimits = { min: 2, max: 200 } as const;
export const ipv4PrefixLength = 24;
export const ipv6PrefixLength = 64;

/** At most 15 characters, so that a host's name also fits where an interface's name does. */
const labelPattern = /^[a-z0-9](?:[a-z0-9-]{0,13}[a-z0-9])?$/;
/** IPv6 wants links of at least 1280 bytes; a veth takes at most 65535. */
const mtuLimits = { min: 1280, max: 65_535 } as const;
const defaultMtu = 1500;
const maxDelayMs = 60_000;

export function labSpec(options: SpecOptions): LabSpec {
  const mtu = options.mtu ?? defaultMtu;
  const delayMs = options.delayMs ?? 0;
  const lossPercent = options.lossPercent ?? 0;
  if (!Number.isInteger(mtu) || !isWithin(mtu, mtuLimits.min, mtuLimits.max)) {
    throw new UsageError(`lab: mtu ${mtu} is not a whole number from ${mtuLimits.min} to ${mtuLimits.max}`);
  }
  if (!isWithin(delayMs, 0, maxDelayMs))
    throw new UsageError(`lab: delay ${delayMs} ms is not within 0 to ${maxDelayMs}`);
  if (!isWithin(lossPercent, 0, 100)) throw new UsageError(`lab: loss ${lossPercent} % is not within 0 to 100`);
  return {
    name: options.name === undefined ? null : labelOf(options.name, 'lab name'),
    hosts: hostNames(options.hosts ?? hostLimits.min),
    mtu,
    delayMs,
    lossPercent,
  };
}

/** Also false for NaN. */
function isWithin(value: number, min: number, max: number): boolean {
  return value >= min && value <= max;
}

function labelOf(text: string, what: string): string {
  if (labelPattern.test(text)) return text;
  throw new UsageError(`lab: ${what} ${JSON.stringify(text)} is not 1 to 15 of a-z, 0-9 and inner hyphens`);
}

function hostNames(hosts: number | readonly string[]): readonly string[] {
  const count = typeof hosts === 'number' ? hosts : hosts.length;
  if (!Number.isInteger(count) || !isWithin(count, hostLimits.min, hostLimits.max)) {
    throw new UsageError(`lab: ${count} hosts; a lab has ${hostLimits.min} to ${hostLimits.max}`);
  }
  if (typeof hosts === 'number') return numberedNames(count);
  const names = hosts.map((name) => labelOf(name, 'host name'));
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  if (twice !== undefined) throw new UsageError(`lab: two hosts are called ${twice}`);
  return names;
}

function numberedNames(count: number): readonly string[] {
  const letters = 26;
  const name = (index: number): string => (count <= letters ? String.fromCharCode(97 + index) : `h${index + 1}`);
  return Array.from({ length: count }, (_, index) => name(index));
}

/**
 * The same digits in both families (host 16 is 10.77.0.16 and fd77::16), because people read them
 * side by side.
 */
export function addressesOf(hostIndex: number): Addresses {
  return { ipv4: `10.77.0.${hostIndex + 1}`, ipv6: `fd77::${hostIndex + 1}` };
}

/** The index of a host, from which its addresses follow. */
export function hostIndexOf(spec: LabSpec, host: string): number {
  const index = spec.hosts.indexOf(host);
  if (index >= 0) return index;
  throw new UsageError(`no host ${JSON.stringify(host)} in this lab${didYouMean(host, spec.hosts)}`);
}

/** Two hosts have one cable; more hosts need a switch. */
export function hasSwitch(spec: LabSpec): boolean {
  return spec.hosts.length > 2;
}

export function namespaceOf(labId: string, host: string): string {
  return `mr-${labId}-${host}`;
}

/** The underscore keeps it apart from a host that is called "switch". */
export function switchNamespaceOf(labId: string): string {
  return `mr-${labId}_switch`;
}

/** Every network namespace the lab may own. */
export function namespacesOf(labId: string, spec: LabSpec): readonly string[] {
  const hosts = spec.hosts.map((host) => namespaceOf(labId, host));
  return hasSwitch(spec) ? [...hosts, switchNamespaceOf(labId)] : hosts;
}
