// The endpoint of a QP of this side.

import { randomInt } from 'node:crypto';
import type { QpEndpoint, RemoteRegion } from './endpoint/index.ts';
import type { Qp } from './qp.ts';

export function randomPsn(): number {
  return randomInt(0x100_0000);
}

/** By the device's first port. */
export function localQpEndpoint(
  qp: Qp,
  psn: number = randomPsn(),
  regions: Readonly<Record<string, RemoteRegion>> = {},
): QpEndpoint {
  const { gids, gidIndex = 0, lid, activeMtu } = qp.pd.device.port();
  return { qpNumber: qp.number, psn, gid: gids[gidIndex] ?? '::', lid, mtu: activeMtu, regions };
}
