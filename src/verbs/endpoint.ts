// An endpoint: what a peer must know of a QP to connect to it, as plain data and as JSON from a stranger.

import { randomInt } from 'node:crypto';
import { MillraceError } from '../errors.ts';
import { type Gid, gidBytes } from './gid.ts';
import type { RemoteRegion } from './mr.ts';
import type { Qp } from './qp.ts';
import type { Mtu } from './qp-state.ts';

export interface QpEndpoint {
  readonly qpNumber: number;
  /** The first packet sequence number this side sends. */
  readonly psn: number;
  readonly gid: Gid;
  readonly lid: number;
  readonly mtu: Mtu;
  /** What the peer may reach, by a name both sides know. */
  readonly regions: Readonly<Record<string, RemoteRegion>>;
}

const version = 1;
const maxRegions = 256;
const maxNameLength = 64;
const mtus: readonly number[] = [256, 512, 1024, 2048, 4096];

export function randomPsn(): number {
  return randomInt(0x100_0000);
}

/** This side's endpoint, by the device's first port. */
export function localQpEndpoint(
  qp: Qp,
  psn: number = randomPsn(),
  regions: Readonly<Record<string, RemoteRegion>> = {},
): QpEndpoint {
  const { gids, gidIndex = 0, lid, activeMtu } = qp.pd.device.port();
  return { qpNumber: qp.number, psn, gid: gids[gidIndex] ?? '::', lid, mtu: activeMtu, regions };
}

/** As plain data for one line of JSON. */
export function encodeQpEndpoint(endpoint: QpEndpoint): object {
  return { v: version, ...endpoint };
}

/** Checks everything: the other side may be anybody. */
export function decodeQpEndpoint(value: unknown): QpEndpoint {
  const fields = fieldsOf(value, 'its endpoint');
  if (fields.v !== version) throw refused(`it speaks version ${shown(fields.v)} of the exchange, not ${version}`);
  const { gid, mtu } = fields;
  if (typeof gid !== 'string' || !isGid(gid)) throw refused(`gid ${shown(gid)} is no address`);
  if (typeof mtu !== 'number' || !mtus.includes(mtu)) throw refused(`mtu ${shown(mtu)} is none of ${mtus.join(', ')}`);
  return {
    qpNumber: integer(fields, 'qpNumber', 0xff_ffff),
    psn: integer(fields, 'psn', 0xff_ffff),
    gid,
    lid: integer(fields, 'lid', 0xffff),
    mtu: mtu as Mtu,
    regions: decodeRegions(fields.regions),
  };
}

function decodeRegions(value: unknown): Readonly<Record<string, RemoteRegion>> {
  const entries = Object.entries(fieldsOf(value, 'regions'));
  if (entries.length > maxRegions) throw refused(`${entries.length} regions; at most ${maxRegions} are taken`);
  // Without a prototype, so that no name of a stranger means anything.
  const regions: Record<string, RemoteRegion> = Object.create(null);
  for (const [name, region] of entries) {
    if (name.length > maxNameLength) throw refused(`a region's name has ${name.length} characters`);
    const fields = fieldsOf(region, `region ${shown(name)}`);
    const address = integer(fields, 'address', Number.MAX_SAFE_INTEGER);
    const sizeBytes = integer(fields, 'sizeBytes', Number.MAX_SAFE_INTEGER);
    if (!Number.isSafeInteger(address + sizeBytes)) throw refused(`region ${shown(name)} ends past 2^53`);
    regions[name] = { address, rkey: integer(fields, 'rkey', 0xffff_ffff), sizeBytes };
  }
  return regions;
}

function fieldsOf(value: unknown, what: string): Readonly<Record<string, unknown>> {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return { ...value };
  throw refused(`${what} is ${shown(value)}, not an object`);
}

function integer(fields: Readonly<Record<string, unknown>>, name: string, max: number): number {
  const value = fields[name];
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 && value <= max) return value;
  throw refused(`${name} is ${shown(value)}; expected 0 to ${max}`);
}

function isGid(text: string): boolean {
  try {
    return gidBytes(text).length === 16;
  } catch {
    return false;
  }
}

/** A stranger's words, short and on one line. */
function shown(value: unknown): string {
  const text = JSON.stringify(value) ?? 'missing';
  return text.length > 40 ? `${text.slice(0, 40)}…` : text;
}

function refused(reason: string): MillraceError {
  return new MillraceError('MILLRACE_ERR_FAILED', `connect a QP: the peer's answer makes no sense: ${reason}`);
}
