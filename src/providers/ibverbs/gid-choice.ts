// Which of a port's GIDs to use: on RoCE the table has one for each address and each version of the
// protocol, and the first one seldom reaches a peer.

import { type Gid, gidBytes } from '../../verbs/index.ts';

/** enum ibv_gid_type. */
export const gidTypes = ['IB', 'RoCE v1', 'RoCE v2'] as const;
type GidType = (typeof gidTypes)[number];

export interface GidEntry {
  /** In the device's table. */
  readonly index: number;
  readonly gid: Gid;
  readonly type: GidType;
}

type Family = 'IPv4' | 'IPv6' | 'link-local';

// Version 2 is routed and supported by all devices today; an IPv4 address was given on purpose, a
// link-local one was not.
const types: readonly GidType[] = ['RoCE v2', 'IB', 'RoCE v1'];
const families: readonly Family[] = ['IPv4', 'IPv6', 'link-local'];

/** The preferred entry, or undefined when the table is empty. */
export function preferredGid(entries: readonly GidEntry[], isEthernet: boolean): GidEntry | undefined {
  if (!isEthernet) return entries.find(({ index }) => index === 0) ?? entries[0];
  return entries.toSorted(byPreference)[0];
}

/** The entry to reach a peer from: of the peer's own family, or else the preferred one. */
export function sourceGid(entries: readonly GidEntry[], isEthernet: boolean, peer: Gid): GidEntry | undefined {
  const family = familyOf(peer);
  const fitting = isEthernet ? entries.filter(({ gid }) => familyOf(gid) === family) : [];
  return preferredGid(fitting, isEthernet) ?? preferredGid(entries, isEthernet);
}

function byPreference(one: GidEntry, other: GidEntry): number {
  return (
    types.indexOf(one.type) - types.indexOf(other.type) ||
    families.indexOf(familyOf(one.gid)) - families.indexOf(familyOf(other.gid)) ||
    one.index - other.index
  );
}

function familyOf(gid: Gid): Family {
  const bytes = gidBytes(gid);
  const isMapped = bytes.subarray(0, 10).every((byte) => byte === 0) && bytes[10] === 0xff && bytes[11] === 0xff;
  if (isMapped) return 'IPv4';
  return bytes[0] === 0xfe && (bytes[1] & 0xc0) === 0x80 ? 'link-local' : 'IPv6';
}
