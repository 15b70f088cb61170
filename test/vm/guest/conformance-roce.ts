// The conformance suite between the kernel's rxe and our own RoCEv2, run inside a guest: `ADDRESS
// ADDRESS`, those of the soft device when rxe is on the left, where most requests come from, and
// when the soft device is.
//
// rxe lives in the guest's first network namespace and has UDP port 4791 there; this process is in
// another one with the soft device, and reaches rxe because RDMA devices are shared between
// namespaces.

import { isIPv6 } from 'node:net';
import { ibverbsProvider } from '../../../src/providers/ibverbs/index.ts';
import { openSoftDevice } from '../../../src/providers/index.ts';
import { Device } from '../../../src/verbs/index.ts';
import { portOf } from '../../conformance/connect.ts';
import { type ConformanceTarget, conformance, preferredGid, wireParts } from '../../conformance/index.ts';
import { rxeLacks } from './rxe-lacks.ts';

const addresses = process.argv.slice(2);
const firsts = ['rxe', 'soft'] as const;

/** The one of rxe's addresses that the soft device's peers have. */
function gidOf(device: Device, address: string): string {
  const { gids } = portOf(device);
  const isWanted = (gid: string): boolean => gid.startsWith('fd') === isIPv6(address) && !gid.startsWith('fe80');
  return device.info.provider === 'soft' ? preferredGid(device) : (gids.find(isWanted) ?? '');
}

function targetOf(first: (typeof firsts)[number], address: string): ConformanceTarget {
  return {
    name: `${first} first, at ${address}`,
    gidOf: (device) => gidOf(device, address),
    lacks: rxeLacks,
    open: async () => {
      const rxe = new Device(ibverbsProvider.openDevice('rxe0'));
      const soft = openSoftDevice({ wire: 'roce', address });
      const [left, right] = first === 'rxe' ? [rxe, soft] : [soft, rxe];
      return {
        left,
        right,
        [Symbol.asyncDispose]: async () => {
          left.close();
          right.close();
        },
      };
    },
  };
}

for (const [index, first] of firsts.entries()) {
  const target = targetOf(first, addresses[index] ?? '');
  // The second direction needs no second look at what is not on the wire.
  if (first === 'rxe') conformance(target);
  else conformance(target, wireParts);
}
