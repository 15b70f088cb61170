// A port of the device: state, MTU, and the table of its GIDs.

import { gidEntry, type IbvPortAttributes, ibverbs } from '../../native/index.ts';
import { formatGid, type Gid, type Mtu, type PathTo, type PortInfo } from '../../verbs/index.ts';
import { checkMade, checkVerbs } from './errors.ts';
import { type GidEntry, gidTypes, preferredGid, sourceGid } from './gid-choice.ts';
import type { Handle } from './handle.ts';

/** enum ibv_mtu counts from 1. */
const mtus: readonly Mtu[] = [256, 512, 1024, 2048, 4096];

/** enum ibv_port_state; ACTIVE_DEFER carries traffic, too. */
const portStates: readonly PortInfo['state'][] = ['DOWN', 'DOWN', 'INIT', 'ARMED', 'ACTIVE', 'ACTIVE'];

/** How many entries one call may ask for: the kernel takes sizes of 16 bits. */
const MAX_GIDS = 2047;
const MAX_PORTS = 4;

/** enum ibv_port_attr.link_layer. */
const linkLayers = ['unspecified', 'InfiniBand', 'Ethernet'] as const;

export function mtuCode(mtu: Mtu): number {
  return mtus.indexOf(mtu) + 1;
}

export function portState(state: number): PortInfo['state'] {
  return portStates[state] ?? 'DOWN';
}

export function readPort(context: Handle, number: number): PortInfo {
  const attributes = readAttributes(context, number);
  const entries = readGids(context, number, attributes.gids);
  const length = Math.max(0, ...entries.map(({ index }) => index + 1));
  const gids: Gid[] = Array.from({ length }, () => '::');
  const types: string[] = Array.from({ length }, () => '');
  for (const { index, gid, type } of entries) {
    gids[index] = gid;
    types[index] = type;
  }
  const preferred = preferredGid(entries, isEthernet(attributes));
  return {
    number,
    state: portState(attributes.state),
    lid: attributes.lid,
    maxMtu: mtus[attributes.maxMtu - 1] ?? 256,
    activeMtu: mtus[attributes.activeMtu - 1] ?? 256,
    gids,
    gidTypes: types,
    gidIndex: preferred?.index ?? 0,
    linkLayer: linkLayers[attributes.linkLayer] ?? 'unspecified',
  };
}

export interface Source {
  /** Of the GID to send from. */
  readonly gidIndex: number;
  readonly activeMtu: Mtu;
  /** Whether packets carry GIDs: always on Ethernet, on InfiniBand only where LIDs do not reach. */
  readonly isGlobal: boolean;
}

/** How to reach a peer from a port. */
export function chooseSource(context: Handle, number: number, path: PathTo): Source {
  const attributes = readAttributes(context, number);
  const isGlobal = isEthernet(attributes) || path.gidIndex !== undefined || (path.lid ?? 0) === 0;
  const choose = (): number =>
    sourceGid(readGids(context, number, attributes.gids), isEthernet(attributes), path.gid)?.index ?? 0;
  return { gidIndex: path.gidIndex ?? choose(), activeMtu: mtus[attributes.activeMtu - 1] ?? 256, isGlobal };
}

export function readAttributes(context: Handle, number: number): IbvPortAttributes {
  return checkMade(ibverbs.ibvQueryPort(context.value, number), 'ibv_query_port', () => `look at port ${number}`);
}

function isEthernet({ linkLayer }: IbvPortAttributes): boolean {
  return linkLayers[linkLayer] === 'Ethernet';
}

/** The entries of one port that are not empty. The table has those of all ports. */
function readGids(context: Handle, port: number, places: number): readonly GidEntry[] {
  const bytes = new Uint8Array(Math.min(places * MAX_PORTS, MAX_GIDS) * gidEntry.bytes);
  const count = ibverbs.ibvQueryGids(context.value, bytes);
  checkVerbs(count, 'ibv_query_gid_table', () => 'look at the GIDs');
  const view = new DataView(bytes.buffer);
  const entries: GidEntry[] = [];
  for (let at = 0; at < count * gidEntry.bytes; at += gidEntry.bytes) {
    // The library writes them in the machine's own order.
    if (view.getUint32(at + gidEntry.port, true) !== port) continue;
    const type = gidTypes[view.getUint32(at + gidEntry.type, true)] ?? 'IB';
    const gid = formatGid(bytes.subarray(at + gidEntry.gid, at + gidEntry.gid + 16));
    entries.push({ index: view.getUint32(at + gidEntry.index, true), gid, type });
  }
  return entries.toSorted((one, other) => one.index - other.index);
}
