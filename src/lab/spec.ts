// What a lab shall look like, as plain data: its hosts, their addresses and the qualities of the wire.

import { UsageError } from '../errors.ts';
import { didYouMean } from '../text/index.ts';

export interface WireOptions {
  /** Bytes of IP packet that fit a frame. 1280 to 65535, 1500 unless said otherwise. */
  readonly mtu?: number;
  /** Added to every packet in each direction, so a round trip takes twice as long. */
  readonly delayMs?: number;
  /** Share of packets lost in each direction, 0 to 100. */
  readonly lossPercent?: number;
}

export interface SpecOptions extends WireOptions {
  /** Names, or how many: those are then called a, b, c… Two unless said otherwise. */
  readonly hosts?: number | readonly string[];
  /** What people call the lab; it always has an id as well. */
  readonly name?: string;
}

/** Checked, with the defaults filled in. Everything the kernel objects are named after follows from this and an id. */
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

/** The same digits in both families (host 16 is 10.77.0.16 and fd77::16), because people read them side by side. */
export function addressesOf(hostIndex: number): Addresses {
  return { ipv4: `10.77.0.${hostIndex + 1}`, ipv6: `fd77::${hostIndex + 1}` };
}

/** Where the host stands in the lab, which is also what its addresses follow from. */
export function hostIndexOf(spec: LabSpec, host: string): number {
  const index = spec.hosts.indexOf(host);
  if (index >= 0) return index;
  throw new UsageError(`no host ${JSON.stringify(host)} in this lab${didYouMean(host, spec.hosts)}`);
}

/** Two hosts share one cable; more of them need a switch. */
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
